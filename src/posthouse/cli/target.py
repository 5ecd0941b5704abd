"""Target: `module:service` or `module:app` on the command line becomes a Service, or all of an App's."""

from __future__ import annotations

import importlib
import linecache
import pkgutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from posthouse.app import App, app_of
from posthouse.cli.output import aim
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError, PosthouseError, did_you_mean
from posthouse.service import Service
from posthouse.store import Store
from posthouse.stores import open_store

Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="module:service or module:app, or the module alone when it has one.")
]
Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET", help="module:service or module:app, or the module alone when it has one; one or more."
    ),
]


NEIGHBOURS = 6
"""So many modules are named to somebody who named none of them."""

Found = Mapping[str, Service | App]
"""What a module holds, by name."""


def load(target: str) -> Service:
    """The one service that a target names. Raises ConfigurationError, which says what was found instead."""
    aim(target)
    services = services_of(target)
    if len(services) > 1:
        names = ", ".join(service.name for service in services)
        raise ConfigurationError(f"{target} is an App of several services ({names}): name one of them")
    return services[0]


def services_of(target: str) -> Sequence[Service]:
    """Import the module, with the working directory first on the path, and find the service in it, or an App with its
    services. An App goes before a service alone. Raises ConfigurationError, which says what was found instead."""
    module_name, _, attribute = target.partition(":")
    module = _import(module_name, target)
    found = {name: value for name, value in vars(module).items() if isinstance(value, Service | App)}
    if attribute:
        named = _named(module_name, module, attribute, found)
    else:
        apps = {name: value for name, value in found.items() if isinstance(value, App)}
        distinct = list({id(value): value for value in (apps or found).values()}.values())
        if len(distinct) != 1:
            raise ConfigurationError(f"{module_name} {_inventory(module_name, found)}")
        named = distinct[0]
    return named.services if isinstance(named, App) else [named]


def store_of(target: str) -> Store:
    """A store by its URL, or the one that the services of an App share."""
    aim(target)
    return open_store(target, clock=SystemClock()) if "://" in target else app_of(services_of(target)[0]).store


def load_all(targets: Sequence[str]) -> list[Service]:
    """Every service once, in the order given; every problem at once."""
    aim(*targets)
    services: dict[int, Service] = {}
    problems: list[str] = []
    for target in targets:
        try:
            services |= {id(service): service for service in services_of(target)}
        except ConfigurationError as error:
            problems += error.problems
    names = [service.name for service in services.values()]
    problems += [f"two services are called {name!r}" for name in sorted({n for n in names if names.count(n) > 1})]
    if problems:
        raise ConfigurationError(*problems)
    return list(services.values())


def _named(module_name: str, module: ModuleType, attribute: str, found: Found) -> Service | App:
    if attribute in found:
        return found[attribute]
    if hasattr(module, attribute):
        kind = type(getattr(module, attribute)).__name__
        raise ConfigurationError(
            f"{module_name}:{attribute} is no Service and no App, but {kind}; {module_name} {_inventory(module_name, found)}"
        )
    hint = did_you_mean(attribute, found) if found else f" {module_name} {_inventory(module_name, found)}"
    raise ConfigurationError(f"{module_name} has no {attribute!r}.{hint}")


def _inventory(module_name: str, found: Found) -> str:
    if not found:
        return "holds no Service: make one with `orders = Service('orders')`"
    return f"holds {', '.join(f'{module_name}:{name}' for name in sorted(found))}: name one of them"


def _import(name: str, target: str) -> ModuleType:
    _refuse_a_path(name, target)
    here = str(Path.cwd())
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigurationError(
                f"no module is called {error.name!r} in {here} or among the installed ones.{_hint(error.name)}"
            ) from None
        raise ConfigurationError(_failure(name, error)) from error
    except Exception as error:
        raise ConfigurationError(_failure(name, error)) from error


def _hint(missing: str) -> str:
    """What lies beside a module that is not there: in its package, or in the working directory."""
    package = missing.rpartition(".")[0]
    folders = getattr(sys.modules.get(package), "__path__", ())
    found = [f"{package}.{one.name}" for one in pkgutil.iter_modules(folders)]
    return did_you_mean(missing, found) if found else _neighbours(missing)


def _refuse_a_path(name: str, target: str) -> None:
    if "://" in target:
        raise ConfigurationError(
            f"{target.partition('://')[0]}:// is where a store or a broker is; name what uses it: module:service"
        )
    if name.endswith(".py") or "/" in name or "\\" in name:
        module = name.removesuffix(".py").strip("./").replace("\\", "/").replace("/", ".")
        raise ConfigurationError(f"{target!r} is a file, not a module. Did you mean {target.replace(name, module)!r}?")
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigurationError(f"{target!r} is not a target: write module:service, as in shop.orders:orders")


def _neighbours(missing: str) -> str:
    """A hint from what lies in the working directory."""
    here = Path.cwd()
    modules = {path.stem for path in here.glob("*.py")} | {path.parent.name for path in here.glob("*/__init__.py")}
    known = sorted(name for name in modules if name.isidentifier())
    hint = did_you_mean(missing, known)
    if len(known) <= NEIGHBOURS or not hint.startswith(" Known"):
        return hint
    return f" There are {', '.join(known[:NEIGHBOURS])} and {len(known) - NEIGHBOURS} more: is this the folder of your project?"


def _failure(name: str, error: Exception) -> str:
    """The user's own frames, without the import machinery; a PosthouseError needs only its place."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    if isinstance(error, PosthouseError):
        place = f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""
        return f"{name} cannot be imported: {place}{error}"
    linecache.checkcache()
    story = "".join([*traceback.format_list(own), *traceback.format_exception_only(error)]).rstrip()
    return f"{name} cannot be imported:\n{story}{_remedy(error)}"


def _remedy(error: Exception) -> str:
    """What to do about an application of Django's that was not set up."""
    if type(error).__name__ not in ("ImproperlyConfigured", "AppRegistryNotReady"):
        return ""
    return "\nDjango is not set up here: with `posthouse.django` in INSTALLED_APPS, run this as `python manage.py posthouse …`"


def _is_theirs(filename: str) -> bool:
    return (
        not filename.startswith("<frozen importlib") and "/posthouse/" not in filename and "/importlib/" not in filename
    )
