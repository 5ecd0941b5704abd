"""What a service does again and again: declared with `@service.every`, begun by one of many processes, run as a handler."""

from posthouse.processes.schedule.book import ScheduleBook
from posthouse.processes.schedule.cron import Missed
from posthouse.processes.schedule.desk import Schedules, ScheduleView
from posthouse.processes.schedule.run import Run
from posthouse.processes.schedule.schedule import Schedule, Tenants
from posthouse.processes.schedule.scheduler import Scheduler

__all__ = ["Missed", "Run", "Schedule", "ScheduleBook", "ScheduleView", "Scheduler", "Schedules", "Tenants"]
