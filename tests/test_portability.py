"""The library, the lab and `windvane --help` run without the modules that only POSIX has."""

from pathlib import Path

from processes import join_paths, run_python

POSIX_ONLY = ("fcntl", "grp", "posix_ipc", "pty", "pwd", "resource", "syslog", "termios", "tty")
HIDE = f"""
import os, sys
import filelock  # has its own way to lock on every system, so it may see the hidden modules

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in {POSIX_ONLY!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in {POSIX_ONLY!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
for name in ("fork", "getuid", "geteuid", "register_at_fork", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
"""


def run_without_posix(code: str, folder: Path) -> str:
    """Run code in a fresh process whose POSIX-only modules and functions are hidden."""
    environment = {"PYTHONPATH": join_paths(), "NUMBA_NUM_THREADS": "1"}
    return run_python("-c", HIDE + code, folder=folder, environment=environment).stdout


def test_hidden_modules_cannot_be_imported(tmp_path: Path) -> None:
    code = "try:\n    import fcntl\nexcept ModuleNotFoundError:\n    print('hidden')"
    assert run_without_posix(code, tmp_path) == "hidden\n"


def test_a_policy_chooses_learns_and_is_saved_without_posix(tmp_path: Path) -> None:
    code = """
import windvane as wv
policy = wv.Policy(2, wv.discount(0.9), wv.thompson(0.5), seed=1)
policy.learn(policy.choose([[1.0, 0.0], [0.0, 1.0]]), 1.0)
policy.save("policy.npz")
print(wv.Policy.load("policy.npz").round)
"""
    assert run_without_posix(code, tmp_path) == "1\n"


def test_the_lab_simulates_without_posix(tmp_path: Path) -> None:
    code = """
import sys
from windvane.cli import main
sys.argv = ["windvane", "simulate", "--policy", "discount(0.9) * thompson(0.5)", "--dim", "2"]
sys.argv += ["--horizon", "50", "--replications", "2", "--out", "study", "--json"]
main()
"""
    assert '"policy"' in run_without_posix(code, tmp_path)
    assert (tmp_path / "study").is_dir()


def test_help_is_printed_without_posix(tmp_path: Path) -> None:
    code = "import sys; from windvane.cli import main; sys.argv = ['windvane', '--help']; main()"
    assert "serve" in run_without_posix(code, tmp_path)
