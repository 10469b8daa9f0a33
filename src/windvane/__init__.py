"""Windvane: linear contextual bandits whose memory fades.

A public name is loaded when it is first used, so that `import windvane` and the command line load
no NumPy. `__init__.pyi` lists the names, for this module as for type checkers.
"""

from lazy_loader import attach_stub

__version__ = "1.0.0"
__getattr__, __dir__, _names = attach_stub(__name__, __file__)
__all__ = [name for name in _names if name not in ("client", "sklearn")]  # they need more packages
