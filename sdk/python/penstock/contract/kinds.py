"""The kinds that a dataset's schema may give to fields and metadata columns."""

from enum import StrEnum


class FieldKind(StrEnum):
    """What the bytes of a field are; decides how the loader decodes them."""

    IMAGE = "image"
    MASK = "mask"
    BYTES = "bytes"
    TEXT = "text"
    ARRAY = "array"


class ColumnKind(StrEnum):
    """The type of a metadata column."""

    CATEGORY = "category"
    MULTI_CATEGORY = "multi_category"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    TEXT = "text"
    TIMESTAMP = "timestamp"


class ColumnRole(StrEnum):
    """Columns with a meaning of their own; a dataset has at most one of each."""

    LABEL = "label"
    GROUP = "group"
