# The values of Arrow columns, each made when it is read. Arrow owns the memory, and a column's
# `array` keeps it alive.

from uuid import UUID, SafeUUID

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8

cdef extern from *:
    """
    #define CDC_NEW_BYTES(type, arguments) PyBytes_Type.tp_new((PyTypeObject *)type, arguments, NULL)

    static PyObject *cdc_integer(uint64_t high, uint64_t low)
    {
        unsigned char digits[16];  // little-endian
        for (int place = 0; place < 8; place++) {
            digits[place] = (unsigned char)(low >> 8 * place);
            digits[8 + place] = (unsigned char)(high >> 8 * place);
        }
    #if PY_VERSION_HEX >= 0x030D0000
        return PyLong_FromUnsignedNativeBytes(digits, 16, Py_ASNATIVEBYTES_LITTLE_ENDIAN);
    #else
        return _PyLong_FromByteArray(digits, 16, 1, 0);
    #endif
    }
    """
    object integer "cdc_integer"(uint64_t high, uint64_t low)
    object new_bytes "CDC_NEW_BYTES"(object type, tuple arguments)

cdef class Values

ctypedef object (*MakeValue)(Values column, Py_ssize_t at)

cdef enum:
    ARROW_TYPES = 64

cdef MakeValue[ARROW_TYPES] MAKERS  # by the number of the Arrow type; NULL for most types


@cython.final
cdef class Values:
    """The values of an Arrow column of numbers, booleans, text or blobs."""

    cdef object array
    cdef const uint8_t *valid  # a bit for each value; NULL if none is null
    cdef const int32_t *offsets
    cdef const uint8_t *data
    cdef Py_ssize_t first, length
    cdef MakeValue make
    cdef type kind  # of blobs
    cdef Py_ssize_t size  # of blobs of this kind
    cdef object last  # the object that was made last of such a blob, and the place of its bytes
    cdef const uint8_t *last_bytes

    def __init__(self, array):
        if MAKERS[array.type.id] == NULL:
            raise TypeError(f"expected numbers, booleans, text or blobs, found {array.type}")
        buffers = [buffer.address if buffer is not None else 0 for buffer in array.buffers()]
        self.make = MAKERS[array.type.id]
        self.array = array
        self.first = array.offset
        self.length = len(array)
        self.valid = <const uint8_t *><uintptr_t>buffers[0] if array.null_count else NULL
        self.offsets = <const int32_t *><uintptr_t>buffers[1]
        self.data = <const uint8_t *><uintptr_t>buffers[-1]

    def __len__(self):
        return self.length

    def __getitem__(self, Py_ssize_t index):
        return self.at(index)

    cdef inline object at(self, Py_ssize_t index):
        cdef Py_ssize_t place = self.first + index
        if not 0 <= index < self.length:
            raise IndexError(f"expected an index from 0 to {self.length}, found {index}")
        if self.valid != NULL and not bit(self.valid, place):
            return None
        return self.make(self, place)


def values(array):
    """See `cdc_reader.decoding.objects.values`."""
    if MAKERS[array.type.id] == NULL:
        return array.to_pylist()
    return Values(array)


def uuids(array):
    """See `cdc_reader.decoding.objects.uuids`."""
    cdef Values found
    if array.type != pa.string():
        raise ValueError(f"expected texts, found {array.type}")
    found = Values(array)
    found.make = make_uuid
    return found


def blobs(array, type kind not None, Py_ssize_t size):
    """See `cdc_reader.decoding.objects.blobs`."""
    cdef Values found
    if array.type != pa.binary():
        raise ValueError(f"expected blobs, found {array.type}")
    if not issubclass(kind, bytes):
        raise TypeError(f"expected a subclass of bytes, found {kind}")
    found = Values(array)
    found.make = make_kind
    found.kind = kind
    found.size = size
    return found


cdef inline bint bit(const uint8_t *bits, Py_ssize_t at) noexcept:
    return bits[at >> 3] >> (at & 7) & 1


cdef object make_boolean(Values column, Py_ssize_t at):
    return bit(column.data, at)


cdef object make_int8(Values column, Py_ssize_t at):
    return (<const int8_t *>column.data)[at]


cdef object make_int16(Values column, Py_ssize_t at):
    return (<const int16_t *>column.data)[at]


cdef object make_int32(Values column, Py_ssize_t at):
    return (<const int32_t *>column.data)[at]


cdef object make_int64(Values column, Py_ssize_t at):
    return (<const int64_t *>column.data)[at]


cdef object make_float(Values column, Py_ssize_t at):
    return (<const float *>column.data)[at]


cdef object make_double(Values column, Py_ssize_t at):
    return (<const double *>column.data)[at]


cdef object make_text(Values column, Py_ssize_t at):
    cdef int32_t start = column.offsets[at]
    cdef int32_t length = column.offsets[at + 1] - start
    return PyUnicode_DecodeUTF8(<const char *>column.data + start, length, NULL) if length else ""


cdef object make_blob(Values column, Py_ssize_t at):
    cdef int32_t start = column.offsets[at]
    cdef int32_t length = column.offsets[at + 1] - start
    return PyBytes_FromStringAndSize(<const char *>column.data + start, length) if length else b""


cdef object make_kind(Values column, Py_ssize_t at):
    """Make an object of a subclass of bytes, without its constructor.

    Equal blobs in a row share one object: the rows of a stream are next to each other.
    """
    cdef const uint8_t *data = column.data + column.offsets[at]
    if column.offsets[at + 1] - column.offsets[at] != column.size:
        return column.kind(make_blob(column, at))
    if column.last is None or memcmp(data, column.last_bytes, column.size) != 0:
        made = new_bytes(column.kind, (make_blob(column, at),))
        column.last, column.last_bytes = made, data
        return made
    return column.last


cdef object make_uuid(Values column, Py_ssize_t at):
    """Make a UUID without its constructor, which takes four times as long."""
    cdef const uint8_t *text = column.data + column.offsets[at]
    cdef uint64_t wrong = column.offsets[at + 1] - column.offsets[at] != UUID_LENGTH
    cdef uint64_t high, low
    if not wrong:
        wrong = not text[8] == text[13] == text[18] == text[23] == c"-"
        high = eight_digits(text, &wrong) << 32 | two_fours(text + 9, text + 14, &wrong)
        low = two_fours(text + 19, text + 24, &wrong) << 32 | eight_digits(text + 28, &wrong)
        if not wrong:
            made = allocate(UUID)
            fill_slot(made, UUID_INT, integer(high, low))
            fill_slot(made, UUID_SAFETY, UNKNOWN_SAFETY)
            return made
    return UUID(make_text(column, at))


cdef Py_ssize_t UUID_INT = slot_offset(UUID, "int")
cdef Py_ssize_t UUID_SAFETY = slot_offset(UUID, "is_safe")
cdef object UNKNOWN_SAFETY = SafeUUID.unknown

MAKERS[<int>pa.lib.Type_BOOL] = make_boolean
MAKERS[<int>pa.lib.Type_INT8] = make_int8
MAKERS[<int>pa.lib.Type_INT16] = make_int16
MAKERS[<int>pa.lib.Type_INT32] = make_int32
MAKERS[<int>pa.lib.Type_INT64] = make_int64
MAKERS[<int>pa.lib.Type_FLOAT] = make_float
MAKERS[<int>pa.lib.Type_DOUBLE] = make_double
MAKERS[<int>pa.lib.Type_STRING] = make_text
MAKERS[<int>pa.lib.Type_BINARY] = make_blob
