"""A real Slurm of one node on loopback, with accounting and two pretended GPUs, for as long as stdin stays open.

    python tests/clusters/slurm/one_node.py

prints ``SLURM_CONF=...`` when jobs can be submitted; with that variable exported, ``sbatch``, ``squeue`` and
``python train.py -m hydra/launcher=slurm ...`` in any terminal talk to it. End of input (control-D, or the end of the
process at the other end of the pipe), SIGINT and SIGTERM stop it: jobs, daemons and every file go. Needs root and the
packages of `PACKAGES`.

Jobs run on the processors that this process may use (``taskset`` is inherited), whatever Slurm believes of them.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PACKAGES = "slurm-wlm munge slurmdbd mariadb-server"  # Debian's and Ubuntu's names
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "mariadb-install-db", "setpriv")
GPUS = 2
PATIENCE = 6  # seconds until a daemon must answer

SLURM_CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={slurmctld}
SlurmdPort={slurmd}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={slurmdbd}
AccountingStoragePass={folder}/munge.socket
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=1,sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={gpus} RealMemory=16000 Gres=gpu:{gpus} State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=debug Nodes={host} Default=YES State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes={host} State=UP PriorityTier=2 PreemptMode=OFF
"""

SLURMDBD_CONF = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={slurmdbd}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
"""


def missing() -> str | None:
    """What this machine lacks to run Slurm, for people; None if it can."""
    if os.geteuid() != 0:
        return "a Slurm of one node needs root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    if absent := [program for program in PROGRAMS if not shutil.which(program, path=path)]:
        return f"no {', '.join(absent)}: apt-get install --no-install-recommends {PACKAGES}"
    return None


@contextmanager
def slurm() -> Iterator[str]:
    """Start one in a process of its own, which outlasts this one just long enough to clean up; yields ``SLURM_CONF``.

    Raises:
        RuntimeError: if it does not start, or does not stop.
    """
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        _, _, conf = keeper.stdout.readline().strip().partition("=")
        if not conf:
            raise RuntimeError("Slurm did not start")
        yield conf
        keeper.stdin.close()
    if keeper.returncode:
        raise RuntimeError("Slurm did not stop: see above")


@contextmanager
def daemons() -> Iterator[Path]:
    """Start them one after another and stop them in the opposite order; yields the path for ``SLURM_CONF``."""
    with ExitStack() as stack:
        # Short, since a socket's path may have 107 characters only; everybody may enter, or munged refuses it.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)
        conf = _configure(folder)
        environment = os.environ | {
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
            "SLURM_CONF": str(conf),
            "MYSQL_UNIX_PORT": str(folder / "mariadb.socket"),
        }

        def run(*command: str) -> str:
            ran = subprocess.run(command, env=environment, capture_output=True, text=True)
            return ran.stdout if ran.returncode == 0 else ""

        def start(name: str, *command: str, ready: Callable[[], object]) -> None:
            log = stack.enter_context((folder / f"{name}.log").open("w"))
            # Should this process be killed, the daemons go with it.
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a control-C is for this process, which then stops them in order
            )
            stack.callback(_stop, process)
            if not _within(PATIENCE, lambda: ready() or process.poll() is not None) or process.poll() is not None:
                raise RuntimeError(f"{name} did not start:\n{(folder / f'{name}.log').read_text()[-2000:]}")

        munge = folder / "munge.socket"
        start(
            "munged",
            *("munged", "--foreground", f"--key-file={folder / 'munge.key'}", f"--socket={munge}", "--num-threads=1"),
            *(f"--{name}-file={folder / f'munge.{name}'}" for name in ("log", "pid", "seed")),
            ready=munge.exists,
        )
        database = ("--no-defaults", "--user=root", f"--datadir={folder / 'mariadb'}")
        run("mariadb-install-db", *database, "--auth-root-authentication-method=normal", "--skip-test-db")
        sql = folder / "mariadb.socket"
        start("mariadbd", "mariadbd", *database, "--skip-networking", f"--socket={sql}", ready=sql.exists)
        start("slurmdbd", "slurmdbd", "-D", ready=lambda: run("sacctmgr", "-i", "add", "cluster", "one"))
        start("slurmctld", "slurmctld", "-D", ready=lambda: run("sinfo", "--noheader"))
        start("slurmd", "slurmd", "-D", ready=lambda: "idle" in run("sinfo", "--noheader", "--format=%T"))
        stack.callback(_within, PATIENCE, lambda: not run("squeue", "--noheader"))
        stack.callback(run, "scancel", "--full", "--state=RUNNING", "--signal=KILL", "--user=root")
        stack.callback(run, "scancel", "--user=root")
        yield conf


def _configure(folder: Path) -> Path:
    host = socket.gethostname()
    for name in ("state", "spool", "mariadb"):
        (folder / name).mkdir(mode=0o700)
    devices = [folder / f"gpu{index}" for index in range(GPUS)]
    for device in devices:
        os.mknod(device, mode=0o20666, device=os.makedev(1, 3))  # /dev/null under other names
    values = {"host": host, "folder": folder, "gpus": GPUS} | _free_ports("slurmctld", "slurmd", "slurmdbd")
    files = {
        "slurm.conf": SLURM_CONF.format(**values),
        "slurmdbd.conf": SLURMDBD_CONF.format(**values),
        "gres.conf": "".join(f"NodeName={host} Name=gpu File={device}\n" for device in devices),
        "cgroup.conf": "",
    }
    for name, text in files.items():
        (folder / name).write_text(text.lstrip())
    (folder / "slurmdbd.conf").chmod(0o600)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    return folder / "slurm.conf"


def _free_ports(*names: str) -> dict[str, int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
        return {name: sock.getsockname()[1] for name, sock in zip(names, sockets, strict=True)}


def _within(seconds: float, done: Callable[[], object]) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> None:
    if reason := missing():
        sys.exit(f"error: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        with daemons() as conf:
            print(f"SLURM_CONF={conf}", flush=True)
            sys.stdin.read()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
