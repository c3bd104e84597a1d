"""Archives of code from anybody, unpacked so that nothing lands outside the folder and nothing fills the disk."""

from rekindle_service.user_code.unpacking.archive_entry import Limits, UnpackingError
from rekindle_service.user_code.unpacking.unpack import unpack

__all__ = ["Limits", "UnpackingError", "unpack"]
