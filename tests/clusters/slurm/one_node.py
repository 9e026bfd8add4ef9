"""A real Slurm of one node on loopback, with accounting and two pretended GPUs. Needs root and `PACKAGES`.

Jobs run on the processors that this process may use (``taskset`` is inherited), whatever Slurm believes of them.
"""

import os
import secrets
import shutil
import socket
import subprocess
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
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    if absent := [program for program in PROGRAMS if not shutil.which(program, path=path)]:
        return f"no {', '.join(absent)}: apt-get install --no-install-recommends {PACKAGES}"
    return "a Slurm of one node needs root" if os.geteuid() != 0 else None


@contextmanager
def slurm() -> Iterator[str]:
    """Start the daemons one after another and stop them in the opposite order; yields a value for ``SLURM_CONF``."""
    with ExitStack() as stack:
        # Short, since a socket's path may have 107 characters only; everybody may enter, or munged refuses it.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)
        environment = os.environ | {
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
            "SLURM_CONF": _configure(folder),
            "MYSQL_UNIX_PORT": str(folder / "mariadb.socket"),
        }

        def run(*command: str) -> str:
            ran = subprocess.run(command, env=environment, capture_output=True, text=True)
            return ran.stdout if ran.returncode == 0 else ""

        def start(*command: str, ready: Callable[[], object]) -> None:
            log = stack.enter_context((folder / f"{command[0]}.log").open("w"))
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],  # should the tests be killed, it goes with them
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a control-C is for the tests, which then stop it in order
            )
            stack.callback(_stop, process)
            if not _within(PATIENCE, lambda: ready() or process.poll() is not None) or process.poll() is not None:
                raise RuntimeError(f"{command[0]} did not start:\n{Path(log.name).read_text()[-2000:]}")

        munge, sql = folder / "munge.socket", folder / "mariadb.socket"
        files = (f"--{name}-file={folder / f'munge.{name}'}" for name in ("key", "log", "pid", "seed"))
        start("munged", "--foreground", f"--socket={munge}", "--num-threads=1", *files, ready=munge.exists)
        database = ("--no-defaults", "--user=root", f"--datadir={folder / 'mariadb'}")
        run("mariadb-install-db", *database, "--auth-root-authentication-method=normal", "--skip-test-db")
        start("mariadbd", *database, "--skip-networking", f"--socket={sql}", ready=sql.exists)
        start("slurmdbd", "-D", ready=lambda: run("sacctmgr", "-i", "add", "cluster", "one"))
        start("slurmctld", "-D", ready=lambda: run("sinfo", "--noheader"))
        start("slurmd", "-D", ready=lambda: "idle" in run("sinfo", "--noheader", "--format=%T"))
        stack.callback(_within, PATIENCE, lambda: not run("squeue", "--noheader"))
        stack.callback(run, "scancel", "--full", "--state=RUNNING", "--signal=KILL", "--user=root")
        stack.callback(run, "scancel", "--user=root")
        yield environment["SLURM_CONF"]


def _configure(folder: Path) -> str:
    for name in ("state", "spool", "mariadb"):
        (folder / name).mkdir(mode=0o700)
    for index in range(GPUS):
        os.mknod(folder / f"gpu{index}", mode=0o20666, device=os.makedev(1, 3))  # /dev/null under other names
    host, daemons = socket.gethostname(), ("slurmctld", "slurmd", "slurmdbd")
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in daemons]
        ports = {name: one.getsockname()[1] for name, one in zip(daemons, sockets, strict=True)}
    values = {"host": host, "folder": folder, "gpus": GPUS, **ports}
    (folder / "slurm.conf").write_text(SLURM_CONF.format(**values).lstrip())
    (folder / "slurmdbd.conf").write_text(SLURMDBD_CONF.format(**values).lstrip())
    (folder / "gres.conf").write_text(f"NodeName={host} Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n")
    (folder / "cgroup.conf").touch()
    (folder / "munge.key").touch(mode=0o600)
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "slurmdbd.conf").chmod(0o600)
    return str(folder / "slurm.conf")


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
