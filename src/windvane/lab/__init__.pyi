from . import worlds as worlds
from .experiments import TaskProgress as TaskProgress
from .studies.coverage import Coverage as Coverage
from .studies.coverage import coverage as coverage
from .studies.leaderboard import Leaderboard as Leaderboard
from .studies.leaderboard import leaderboard as leaderboard
from .studies.plan import Plan as Plan
from .studies.plan import make_plan as make_plan
from .studies.plan import read_plan as read_plan
from .studies.reproduction import Reproduction as Reproduction
from .studies.reproduction import reproduce as reproduce
from .studies.result import StudyResult as StudyResult
from .studies.result import load as load
from .studies.simulation import Simulation as Simulation
from .studies.simulation import simulate as simulate
from .studies.tuning import Tuning as Tuning
from .studies.tuning import tune as tune
from .worlds.data import read_world as read_world
from .worlds.data import world_from_frame as world_from_frame

__all__: list[str]
