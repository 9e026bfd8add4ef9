"""Time the explorer's page in headless Chromium: its size, the first answer, each further one.

    python probe.py probe=explorer run=results/runs/NAME out=page
    python benchmarks/explorer.py page/explorer.html

The first answer counts from opening the file. A further one is a new pair, with one intervention and without. Asked for
are at most 5 MB, 1 s and 200 ms. A busy machine spoils the times, CPU time less; the load is in the first line.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.browser import CHROMIUM, Browser

ANSWERS = 20
FURTHER = f"""(async () => {{
  for (let n = 0; n < {ANSWERS}; n++) {{
    await update({{ pair: task.shape.map((size, i) => (37 * n + 11 * i) % size), actions: n % 2 ? ['invert:r1'] : [] }})
    document.body.getBoundingClientRect() // lays out what was drawn
  }}
  return performance.now()
}})()"""


def cpu(browser: Browser) -> float:
    """Seconds that the page's process has computed."""
    metrics = browser.call("Performance.getMetrics")["metrics"]
    return next(float(metric["value"]) for metric in metrics if metric["name"] == "ProcessTime")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--repeat", type=int, default=3, help="times the page is opened")
    options = parser.parse_args()
    if CHROMIUM is None:
        parser.error("Chromium is not installed")
    print(f"{options.page.stat().st_size / 1e6:.2f} MB; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as browser:
            browser.call("Performance.enable")
            browser.open(options.page.resolve().as_uri(), "document.body?.dataset.ready !== undefined", 300)
            ready = float(browser("document.body.dataset.ready"))
            print(f"first answer: {ready:.0f} ms; CPU time {1000 * cpu(browser):.0f} ms")
            before, start = cpu(browser), float(browser("performance.now()"))
            wall = (float(browser(FURTHER)) - start) / ANSWERS
            print(f"further answers: {wall:.0f} ms; CPU time {1000 * (cpu(browser) - before) / ANSWERS:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
