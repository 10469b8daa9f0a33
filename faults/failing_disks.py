"""Faults of the disk: full, read-only, slow and failing `fsync`."""

import contextlib
import errno
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from faults.cases import Case
from faults.outcome import Outcome
from faults.stage import Stage
from faults.under_traffic import Scene, run_under_traffic

SOURCE = Path(__file__).with_name("disk_shim.c")
FAULT_SECONDS = (1.0, 4.0)
REST_SECONDS = (0.3, 1.5)
SMALL_DISK = "size=16m,mode=0777"


@cache
def build_shim() -> Path:
    """Compile the shim; the file lasts as long as the process."""
    folder = Path(tempfile.mkdtemp(prefix="windvane-faults-"))
    shim = folder / "disk_shim.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(shim), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return shim


def find_shim_obstacle() -> str | None:
    """Why there is no shim: it takes a C compiler."""
    return None if shutil.which("cc") else "install a C compiler (cc) for slow and failing disks"


class Disk:
    """The controls of the shim."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.mend()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to run on this disk."""
        return {"LD_PRELOAD": str(build_shim()), "FAULTS_DISK": str(self._file)}

    def fail(self, sync_ms: int = 0, sync_failure_percent: int = 0, write_errno: int = 0) -> None:
        """Let syncs take long or fail, and writes fail."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{sync_ms} {sync_failure_percent} {write_errno}\n")
        new.replace(self._file)  # a reader sees the old numbers or the new ones

    def mend(self) -> None:
        """Let the disk work again."""
        self.fail()


def run_with_shim(stage: Stage, case: Case, spoil: Callable[[Disk, Scene], None]) -> Outcome:
    """Run a case on a disk that `spoil` makes fail and that works again in between."""
    site = stage.make_site(case.name, case.database)
    disk = Disk(site.data.with_name("disk"))

    def cause_faults(scene: Scene) -> None:
        for _ in range(case.amount):
            time.sleep(scene.draw.uniform(*REST_SECONDS))
            spoil(disk, scene)
            try:
                time.sleep(scene.draw.uniform(*FAULT_SECONDS))
                if scene.draw.random() < 0.3:
                    scene.server.kill()
                    scene.outcome.counts["service killed on a failing disk"] += 1
            finally:
                disk.mend()
            if scene.server.process is None:
                scene.server.start()
                scene.server.wait()
            scene.outcome.counts[case.kind] += 1

    with stage.make_nursery(disk.environment) as nursery:
        return run_under_traffic(stage, case, cause_faults, nursery, site)


def run_slow_syncs(stage: Stage, case: Case) -> Outcome:
    """Let `fsync` take up to three seconds."""
    return run_with_shim(
        stage, case, lambda disk, scene: disk.fail(sync_ms=scene.draw.randrange(10, 3000))
    )


def run_failing_syncs(stage: Stage, case: Case) -> Outcome:
    """Let some or all calls of `fsync` fail."""
    return run_with_shim(
        stage,
        case,
        lambda disk, scene: disk.fail(sync_failure_percent=scene.draw.choice([5, 30, 100])),
    )


def run_readonly(stage: Stage, case: Case) -> Outcome:
    """Let every write fail as on a file system that became read-only."""
    return run_with_shim(stage, case, lambda disk, scene: disk.fail(write_errno=errno.EROFS))


@contextmanager
def mount_small_disk(folder: Path) -> Iterator[bool]:
    """Mount a small disk there; the value says whether that is permitted."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", SMALL_DISK, "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        is_mounted = False
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def run_full_disk(stage: Stage, case: Case) -> Outcome:
    """Fill the disk, and free it again; without the right to mount one, files cannot grow."""
    site = stage.make_site(case.name, case.database)
    with mount_small_disk(site.data) as is_mounted:
        fill = fill_disk if is_mounted else limit_file_size
        return run_under_traffic(stage, case, partial(_fill_and_free, fill), site=site)


def _fill_and_free(
    fill: Callable[[Scene], contextlib.AbstractContextManager[None]], scene: Scene
) -> None:
    for _ in range(scene.case.amount):
        time.sleep(scene.draw.uniform(*REST_SECONDS))
        scene.server.wait()
        with fill(scene):
            time.sleep(scene.draw.uniform(*FAULT_SECONDS))
            if scene.draw.random() < 0.3:
                scene.server.kill()
                scene.outcome.counts["service killed on a full disk"] += 1
        if scene.server.process is None:
            scene.server.start()
        scene.outcome.counts[fill.__name__] += 1


@contextmanager
def fill_disk(scene: Scene) -> Iterator[None]:
    """Take every block of the disk."""
    ballast = scene.site.data / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def limit_file_size(scene: Scene) -> Iterator[None]:
    """Let the files of the writer grow no further."""
    writers = scene.server.writers
    limits = [resource.prlimit(writer, resource.RLIMIT_FSIZE) for writer in writers]
    for writer, limit in zip(writers, limits, strict=True):
        resource.prlimit(writer, resource.RLIMIT_FSIZE, (1, limit[1]))
    try:
        yield
    finally:
        for writer, limit in zip(writers, limits, strict=True):
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(writer, resource.RLIMIT_FSIZE, limit)
