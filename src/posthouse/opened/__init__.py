"""Opened: what exists from the first use of an App until it is closed: connections, and the parts that work over them.

`ports.py` opens a store and a broker; `writing.py` makes what services speak with; `refusing.py` and `sagas.py` say what cannot
work; `building.py` makes the loops; `retaining.py` says how long things stay; `process.py` says who this process is. `opened.py` holds them together.
"""

from posthouse.opened.opened import Opened
from posthouse.opened.ports import Ports
from posthouse.opened.process import process_name, worker_of
from posthouse.opened.writing import builder_of

__all__ = ["Opened", "Ports", "builder_of", "process_name", "worker_of"]
