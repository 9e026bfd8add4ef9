"""What Slurm's own programs say is read without trust in its form."""

from pathlib import Path

from arith_erd.system import slurm


def test_queue_may_hold_jobs_whose_arguments_break_a_line(monkeypatch):
    listed = [
        "17|3|RUNNING|None|/runs/.slurm-1000/a/sweep.sh",
        "9|N/A|RUNNING|None|/job.sh first",
        "second | line",
        "CLUSTER: x",
    ]
    monkeypatch.setattr(slurm, "_output", lambda *words, timeout: "\n".join(listed))
    assert slurm.array_tasks() == {(Path("/runs/.slurm-1000/a"), "3"): slurm.ArrayTask("17_3", "RUNNING", "None")}


def test_state_of_a_task_that_was_never_seen_is_unknown(monkeypatch):
    monkeypatch.setattr(slurm, "_output", lambda *words, timeout: "COMPLETED\n")  # of other jobs
    assert slurm.accounted_state("") == "unknown"
    assert slurm.accounted_state("17_3") == "COMPLETED"
