"""The orchestrated sagas, one file each: steps from top to bottom, each undo beside its step, deadlines where they pass."""

from melmastoon.reservation.sagas.booking import BookingSaga
from melmastoon.reservation.sagas.check_in import CheckInSaga
from melmastoon.reservation.sagas.check_out import CheckOutSaga
from melmastoon.reservation.sagas.date_change import DateChangeSaga

__all__ = ["BookingSaga", "CheckInSaga", "CheckOutSaga", "DateChangeSaga"]
