"""Log lines of Posthouse's form, set up by a dictionary."""

import logging
import logging.config

logging.config.dictConfig(
    {
        "version": 1,
        "formatters": {"json": {"()": "posthouse.watch.logs.JsonLines"}},
        "filters": {"repeats": {"()": "posthouse.watch.logs.Repeats", "name": "", "most": 100}},
        "handlers": {
            "out": {
                "class": "logging.StreamHandler",
                "formatter": "json",
                "filters": ["repeats"],
                "stream": "ext://sys.stdout",
            }
        },
        "root": {"handlers": ["out"], "level": "INFO"},
    }
)
logging.getLogger("shop").info("set up")
