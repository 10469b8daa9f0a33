"""Build and load the model that the settings of a loop name."""

from windvane.service.loops.full_model import FullModel
from windvane.service.loops.learner_model import LearnerModel
from windvane.service.loops.model import Model, Moment
from windvane.service.loops.settings import Settings
from windvane.service.loops.warmup import prepare_full_model


def build_model(settings: Settings) -> Model:
    """A model of these settings that has learned nothing."""
    if settings.belief == "full":
        prepare_full_model(settings.dim)
        return FullModel(settings)
    return LearnerModel(settings)


def load_model(settings: Settings, saved: bytes, newest: Moment) -> Model:
    """Load a saved model; `newest` is the newest decision that it has learned."""
    if settings.belief == "full":
        prepare_full_model(settings.dim)
        return FullModel.load(settings, saved, newest)
    return LearnerModel.load(settings, saved)
