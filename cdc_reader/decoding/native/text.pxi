# Bytes that Arrow takes unchanged: blobs, and text after validation.


cdef int build_blob(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    cdef int64_t row
    cdef int32_t size = 0
    cdef int32_t *offsets
    cdef uint8_t *data
    begin(out, run.count, 3, 0)
    set_validity(out, run, 0)
    offsets = <int32_t *>new_buffer(out, 1, (run.count + 1) * 4)
    for row in range(run.count):
        offsets[row] = size
        if run.cells[row].length > 0:
            size += run.cells[row].length
    offsets[run.count] = size
    data = <uint8_t *>new_buffer(out, 2, size)
    for row in range(run.count):
        if run.cells[row].length > 0:
            memcpy(data + offsets[row], run.body + run.cells[row].start, run.cells[row].length)
    return 0


cdef int build_ascii(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    build_blob(shape, run, out)
    if ascii_run(<uint8_t *>out.buffers[2], 0, data_size(out)) != data_size(out):
        return refuse_ascii()
    return 0


cdef int build_text(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    """Build text.

    The values are valid if all bytes together are UTF-8, and no value starts inside a character.
    """
    cdef const uint8_t *data
    cdef const int32_t *offsets
    cdef int64_t row
    cdef int64_t size
    build_blob(shape, run, out)
    data = <uint8_t *>out.buffers[2]
    offsets = <int32_t *>out.buffers[1]
    size = data_size(out)
    if not is_utf8(data, size):
        return refuse_utf8()
    for row in range(run.count):
        if offsets[row] < size and data[offsets[row]] & 0xC0 == 0x80:
            return refuse_utf8()
    return 0


cdef inline int64_t data_size(const ArrowArray *array) noexcept nogil:
    return (<int32_t *>array.buffers[1])[array.length]


cdef inline int64_t ascii_run(const uint8_t *data, int64_t at, int64_t size) noexcept nogil:
    """Return the end of the ASCII bytes that begin at `at`; checks eight bytes at a time."""
    cdef uint64_t eight = 0
    while at + 8 <= size:
        memcpy(&eight, data + at, 8)
        if eight & <uint64_t>0x8080808080808080:
            break
        at += 8
    while at < size and data[at] < 0x80:
        at += 1
    return at


cdef bint is_utf8(const uint8_t *data, int64_t size) noexcept nogil:
    """Return True if the bytes are valid according to table 3-7 of the Unicode standard."""
    cdef int64_t at = ascii_run(data, 0, size)
    cdef int length
    while at < size:
        length = character(data + at, size - at)
        if length == 0:
            return False
        at = ascii_run(data, at + length, size)
    return True


cdef inline int character(const uint8_t *data, int64_t left) noexcept nogil:
    """Return the length of the non-ASCII character that starts here; 0 if it is invalid."""
    cdef uint8_t first = data[0]
    cdef uint8_t low = 0x80
    cdef uint8_t high = 0xBF
    cdef int length, index
    if 0xC2 <= first <= 0xDF:
        length = 2
    elif 0xE0 <= first <= 0xEF:
        length = 3
    elif 0xF0 <= first <= 0xF4:
        length = 4
    else:
        return 0
    if length > left:
        return 0
    # The second byte's range excludes overlong forms, surrogates, and values above U+10FFFF.
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:
        high = 0x9F
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if not low <= data[1] <= high:
        return 0
    for index in range(2, length):
        if data[index] & 0xC0 != 0x80:
            return 0
    return length
