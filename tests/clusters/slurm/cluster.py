"""A Slurm of its own on this machine: two nodes of eight declared GPUs, preemption, requeueing, accounting.

Its ports, keys, spool and state are its own, so it meets no other Slurm. To try things by hand::

    python tests/clusters/slurm/cluster.py [--no-accounting]    # prints a command that points a shell to it

Partitions: ``debug`` (the default), whose jobs are preempted and requeued; ``scavenge``, whose jobs are preempted and
cancelled; ``urgent``, whose jobs preempt those; ``whole``, whose jobs get whole nodes.
"""

import argparse
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "mariadb-install-db", "setpriv")
NODES = ("n1", "n2")
GPUS = 8  # of each node
ARRAY = 10  # jobs in an array at most
GRACE = 20  # seconds between SIGTERM and the end of a preempted job

FILES = {  # the configuration, by the name of each file
    "slurm.conf": """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A requeued job waits for that long: 120 s by default, 5 s at least.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MaxArraySize={array}
CompleteWait=0
SchedulerParameters=batch_sched_delay=1,sched_interval=1,sched_min_interval=0,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
GresTypes=gpu,shard
{nodes}
PartitionName=debug Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace} OverSubscribe=NO
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF
PartitionName=scavenge Nodes=ALL PriorityTier=1 PreemptMode=CANCEL GraceTime={grace} OverSubscribe=NO
PartitionName=whole Nodes=ALL PriorityTier=1 PreemptMode=OFF OverSubscribe=EXCLUSIVE
""",
    "slurmdbd.conf": """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdPort={dbd_port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={db_port}
StorageUser=slurm
StoragePass=slurm
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
""",
    "gres.conf": f"Name=gpu File={{folder}}/gpu[0-{GPUS - 1}]\nName=shard Count={4 * GPUS}\n",
    "cgroup.conf": "CgroupPlugin=cgroup/v1\n",
    "user.sql": "GRANT ALL ON *.* TO slurm@'127.0.0.1' IDENTIFIED BY 'slurm';\n",
}
ACCOUNTING = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={dbd_port}
AccountingStoragePass={folder}/munge.socket
"""


class NoSlurmError(RuntimeError):
    """No Slurm can be started here: why."""


def _free_ports(number: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Cluster:
    """A running Slurm. `environment` is this process's, pointed to it and without a word of another Slurm."""

    def __init__(self, folder: Path, accounting: bool = True) -> None:
        foreign = ("SLURM", "SBATCH_", "SQUEUE_", "SACCT_", "SINFO_", "SALLOC_", "SRUN_", "SCANCEL_", "SCONTROL_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        self.folder, self.accounting = folder, accounting
        self.environment = kept | {"SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def command(self, *words: str) -> str:
        """What a command of Slurm prints."""
        return subprocess.run(words, env=self.environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    def start(self) -> None:
        if missing := [program for program in PROGRAMS if not shutil.which(program, path=PATH)]:
            raise NoSlurmError(f"not installed: {', '.join(missing)}")
        if os.geteuid() != 0:
            raise NoSlurmError("only root may start it")
        for is_last in (False, False, True):  # another cluster that starts at this moment can take a port
            try:
                self._start()
                return
            except TimeoutError:
                self.stop()
                if is_last:
                    raise
                shutil.rmtree(self.folder)
                self.folder.mkdir()

    def _start(self) -> None:
        self._configure()
        files = {"key-file": "munge.key", "seed-file": "munge.seed", "log-file": "munge.log", "pid-file": "munge.pid"}
        options = [f"--{option}={self.folder / name}" for option, name in files.items()]
        self._daemon("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *options)
        self._until((self.folder / "munge.socket").exists, "munged")
        if self.accounting:
            self._start_accounting()
        self._daemon("slurmctld", "-D", "-i")
        for node in NODES:
            self.start_node(node)
        self._until(self._is_idle, "Slurm")

    def _is_idle(self) -> bool:
        states = self._answers("sinfo", "--noheader", "--Node", "--partition=debug", "--format=%t")
        return states.split() == ["idle"] * len(NODES) and not self._answers("squeue", "--noheader")

    def start_node(self, name: str) -> None:
        """Start a node, or one that was lost."""
        self._daemon("slurmd", "-D", "-N", name, of=name, SLURMD_NODENAME=name)

    def kill(self, job: str) -> None:
        """``kill -9`` of what a job runs, as the kernel does for lack of memory."""
        number = self.command("squeue", "--noheader", f"--jobs={job}", "--format=%A").strip()
        self._kill(f"SLURM_JOB_ID={number}\0", "SLURM_STEP_ID=")

    def lose_node(self, name: str) -> None:
        """The node stops, with all that runs there, and Slurm is told so rather than left to wait for it."""
        self._daemons.pop(name).kill()
        self._kill(f"SLURMD_NODENAME={name}\0")
        self.command("scontrol", "update", f"nodename={name}", "state=down", "reason=lost")

    def restore(self) -> None:
        """Bring back the state after the start: no jobs, and all nodes are there."""
        for node in NODES:
            if node not in self._daemons:
                self.start_node(node)
        self._until(lambda: not self._answers("scancel", "--user=root") and self._is_idle(), "Slurm")

    def stop(self) -> None:
        """End all jobs and daemons."""
        for name in ("slurmctld", *NODES, "slurmdbd", "mariadbd", "munged"):
            if daemon := self._daemons.pop(name, None):
                daemon.kill() if name in NODES else daemon.terminate()
                daemon.wait()
        self._kill("SLURMD_NODENAME=")

    def _daemon(self, program: str, *arguments: str, of: str | None = None, **variables: str) -> None:
        """Start a daemon that ends with this process, even if that is killed."""
        with (self.folder / f"{of or program}.out").open("ab") as log:
            self._daemons[of or program] = subprocess.Popen(
                ["setpriv", "--pdeathsig=TERM", program, *arguments],
                env=self.environment | {"PATH": PATH} | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _until(self, done: Callable[[], bool], what: str) -> None:
        """Wait for a condition, at most a minute, and only while all daemons run."""
        deadline = time.monotonic() + 60
        while not done():
            ended = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                outputs = [f"{name} ended: {(self.folder / f'{name}.out').read_text()[-500:]}" for name in ended]
                raise TimeoutError("\n".join([f"{what} did not start", *outputs]))
            time.sleep(0.1)

    def _answers(self, *words: str) -> str:
        return subprocess.run(words, env=self.environment, check=False, capture_output=True, text=True).stdout

    def _kill(self, *variables: str) -> None:
        """Kill the processes of this cluster with environment variables that begin so: ``NAME=``, ``NAME=value``."""
        wanted = (f"SLURM_CONF={self.environment['SLURM_CONF']}\0", *variables)
        for file in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has just ended
                environment = b"\0" + file.read_bytes()
                if all(f"\0{variable}".encode() in environment for variable in wanted):
                    os.kill(int(file.parent.name), signal.SIGKILL)

    def _configure(self) -> None:
        ctld, dbd, self._database_port, *slurmds = _free_ports(3 + len(NODES))
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o600)
        for gpu in range(GPUS):
            os.mknod(self.folder / f"gpu{gpu}", stat.S_IFCHR | 0o666, os.makedev(1, 3))  # a second /dev/null
        host = socket.gethostname()
        node = f"NodeHostname={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=64000 Gres=gpu:{GPUS},shard:{4 * GPUS}"
        nodes = (f"NodeName={name} {node} Port={port}" for name, port in zip(NODES, slurmds, strict=True))
        values = {"folder": self.folder, "host": host, "array": ARRAY, "grace": GRACE, "nodes": "\n".join(nodes)}
        values |= {"ctld_port": ctld, "dbd_port": dbd, "db_port": self._database_port}
        accounting = ACCOUNTING if self.accounting else ""
        for name, text in (FILES | {"slurm.conf": FILES["slurm.conf"] + accounting}).items():
            (self.folder / name).write_text(text.format_map(values))
        (self.folder / "slurmdbd.conf").chmod(0o600)

    def _start_accounting(self) -> None:
        data = f"--datadir={self.folder}/database"
        own = ("--no-defaults", data, "--user=root", f"--tmpdir={self.folder}")  # two would share tables in /tmp
        self.command("mariadb-install-db", *own, "--auth-root-authentication-method=normal", "--skip-test-db")
        address = ("--bind-address=127.0.0.1", f"--port={self._database_port}", "--skip-name-resolve")
        self._daemon(
            "mariadbd", *own, *address, f"--socket={self.folder}/database.socket", f"--init-file={self.folder}/user.sql"
        )
        self._until((self.folder / "database.socket").exists, "mariadbd")
        self._daemon("slurmdbd", "-D")
        self._until(
            lambda: "tests" in self._answers("sacctmgr", "--noheader", "--immediate", "add", "cluster", "tests"),
            "slurmdbd",
        )


@contextmanager
def slurm(accounting: bool = True) -> Iterator[Cluster]:
    """A cluster while the block runs.

    Raises:
        NoSlurmError: it cannot be started here.
        TimeoutError: it did not start.
    """
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Path(folder), accounting)
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # else jobs would outlive their cluster
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
            signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-accounting", action="store_true")
    with suppress(KeyboardInterrupt), slurm(not parser.parse_args().no_accounting) as running:
        print(f"export SLURM_CONF={running.environment['SLURM_CONF']}", flush=True)
        signal.pause()
