"""arith_erd: how does a language model compute? Tiny Transformers, binary arithmetic, packs of seeds.

`__init__.pyi` lists the public API. A name loads on first use: importing the package loads neither torch nor Hydra.

>>> import arith_erd as ae
>>> model = ae.load_pretrained("add-nanogpt")
>>> model.predict([100], [27])
array([127])
"""

import random
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import lazy_loader

__version__ = "1.1.0.dev0"

_load, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = ["__version__", *_names]


def __getattr__(name: str) -> Any:
    state = random.getstate()
    value = _load(name)
    random.setstate(state)  # rich draws numbers as it loads
    if name in _names and not isinstance(value, type):
        value = _refusing_unknown_arguments(value, name)
        value.__module__ = __name__  # pickle finds it there
    elif name in _names and getattr(value.__init__, "__module__", "").startswith(f"{__name__}."):  # else not ours
        value.__init__ = _refusing_unknown_arguments(value.__init__, name)
    globals()[name] = value
    return value


def _refusing_unknown_arguments(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The same function, but unknown arguments raise a `UserError` that suggests the nearest one."""
    signed, old_names = signature(function), vars(function).get("old_names", {})
    taken = [parameter for parameter in signed.parameters if parameter != "self"]

    @wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        try:
            signed.bind(*args, **{old_names.get(key, key): value for key, value in named.items()})
        except TypeError as error:
            from .config.compose import arguments_error

            raise arguments_error(name, taken, named, str(error)) from None
        return function(*args, **named)

    return checked
