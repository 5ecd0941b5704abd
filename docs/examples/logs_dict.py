"""Log lines of Posthouse's form, set up by a dictionary."""

import logging
import logging.config

logging.config.dictConfig(
    {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "posthouse.watch.logs.JsonLines"}},
        "filters": {"repeats": {"()": "posthouse.watch.logs.Repeats", "name": "posthouse", "most": 60}},
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
