"""Logs the place of a defect that made a request fail, which aiohttp answers with status 500; never its text."""

from __future__ import annotations

import logging

from core.node.base.tasks import Tasks


def defects_logger(name: str, what: str, tasks: Tasks) -> logging.Logger:
    logger = logging.Logger(name)
    logger.addHandler(_Defects(what, tasks))
    return logger


class _Defects(logging.Handler):
    def __init__(self, what: str, tasks: Tasks) -> None:
        super().__init__()
        self._what, self._tasks = what, tasks

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self._tasks.log_defect(self._what, record.exc_info[1])
