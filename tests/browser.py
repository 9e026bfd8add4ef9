"""Headless Chromium, driven over a pipe by the DevTools protocol."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
READY = "document.body?.dataset.ready !== undefined"  # of the explorer's page
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync")  # fmt: skip


class Browser:
    """One tab. Use it as a context manager.

    Args:
        profile: an empty folder.
    """

    def __init__(self, profile: Path) -> None:
        (child_in, self._out), (self._in, child_out) = os.pipe(), os.pipe()
        self.requests: list[str] = []
        self._buffer, self._number, self._session = b"", 0, None

        # Chromium reads commands from descriptor 3 and writes to 4; the shell puts the pipes there.
        flags = (*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}")
        command = f'exec "$0" "$@" 3<&{child_in} 4>&{child_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, str(CHROMIUM), *flags, "about:blank"],
            pass_fds=(child_in, child_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(child_in)
        os.close(child_out)
        while not (pages := [x for x in self.call("Target.getTargets")["targetInfos"] if x["type"] == "page"]):
            time.sleep(0.1)
        attached = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self.call("Network.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.wait(20)
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                if not (part := os.read(self._in, 1 << 20)):
                    raise OSError("Chromium ended")
                self._buffer += part
            text, _, self._buffer = self._buffer.partition(b"\0")
            found = json.loads(text)
            if found.get("method") == "Network.requestWillBeSent":
                self.requests.append(found["params"]["request"]["url"])
            if found.get("id") == self._number:
                if "error" in found:
                    raise ValueError(found["error"]["message"])
                return found["result"]

    def open(self, url: str, ready: str = "document.readyState === 'complete'", timeout: float = 60) -> None:
        """Load a page anew and wait until a condition holds."""
        self.call("Page.navigate", url="about:blank")  # else another fragment would not load it
        self.requests.clear()
        self.call("Page.navigate", url=url)
        self.wait(ready, timeout)

    def wait(self, condition: str, timeout: float = 60) -> None:
        end = time.monotonic() + timeout
        while not self(condition):
            if time.monotonic() > end:
                raise TimeoutError(condition)
            time.sleep(0.1)

    def __call__(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise ValueError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")
