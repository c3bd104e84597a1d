"""Archives of code from anybody, unpacked so that nothing lands outside the folder and nothing fills the disk."""

from rekindle_service.jobs.packaging.unpacking.archive_entry import Limits, UnpackingError
from rekindle_service.jobs.packaging.unpacking.unpack import unpack

__all__ = ["Limits", "UnpackingError", "unpack"]
