"""Set a task for a coding agent up in a folder, or judge the answer there: ``python -m tests.agent patch FOLDER``.

The agent does what ``task.md`` says. With ``--verify`` its ``answer.json`` is judged: the exit status is 1 if wrong.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import arith_erd as ae
from tests.agent.tasks import INTRODUCTION, TASKS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.agent", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("folder", type=Path, help="new or empty; with --verify, the one with answer.json")
    parser.add_argument("--verify", action="store_true")
    options = parser.parse_args(arguments)
    task, folder = TASKS[options.task], options.folder
    if options.verify:
        right, measured = task.judge(folder)
        print(f"{'right' if right else 'wrong'}: {measured}")
        return int(not right)
    if folder.exists() and any(folder.iterdir()):
        parser.error(f"{folder}: received a folder with files; expected a new or empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in task.inputs.items():
        made = make()
        shutil.copytree(made, folder / name) if isinstance(made, Path) else ae.save_pretrained(made, folder / name)
    (folder / "task.md").write_text(INTRODUCTION + task.text + "\n", encoding="utf-8")
    print(folder / "task.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
