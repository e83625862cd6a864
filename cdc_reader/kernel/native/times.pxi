# The times in time UUIDs that are texts, as `build_uuid` writes them.


def micros_of(times):
    """The microseconds since 1970 of each time UUID; see `cdc_reader.kernel.times`."""
    cdef int64_t count = len(times)
    cdef list buffers = times.buffers()
    cdef const int32_t *offsets
    cdef const uint8_t *data
    cdef int64_t *found
    if times.type != pa.string() or times.null_count:
        raise ValueError(f"expected texts, found {times.null_count} nulls among {times.type}")
    out = pa.allocate_buffer(count * sizeof(int64_t))
    if count:
        offsets = <const int32_t *><uintptr_t>buffers[1].address + <int64_t>times.offset
        data = <const uint8_t *><uintptr_t>buffers[2].address
        found = <int64_t *><uintptr_t>out.address
        with nogil:
            fill_micros(found, offsets, data, count)
    return pa.Array.from_buffers(pa.int64(), count, [None, out])


cdef int fill_micros(
    int64_t *found, const int32_t *offsets, const uint8_t *data, int64_t count
) except -1 nogil:
    cdef int64_t ticks, row
    for row in range(count):
        if offsets[row + 1] - offsets[row] != UUID_LENGTH:
            return refuse_uuid()
        ticks = ticks_of(data + offsets[row]) - UNIX_EPOCH
        found[row] = ticks // TICKS - (ticks % TICKS < 0)
    return 0


cdef inline int64_t ticks_of(const uint8_t *text) except -1 nogil:
    """The 60 bits of the time, which the text has low digits first; the version is left out."""
    return hexadecimal(text + 15, 3) << 48 | hexadecimal(text + 9, 4) << 32 | hexadecimal(text, 8)


cdef inline int64_t hexadecimal(const uint8_t *text, int count) except -1 nogil:
    cdef int64_t value = 0
    cdef int index
    cdef int8_t digit
    for index in range(count):
        digit = HEX_VALUES[text[index]]
        if digit < 0:
            return refuse_uuid()
        value = value << 4 | digit
    return value


cdef int64_t UNIX_EPOCH = UNIX_EPOCH_TICKS
cdef int64_t TICKS = TICKS_PER_MICRO
cdef int32_t UUID_LENGTH = 36
cdef int8_t[256] HEX_VALUES
memset(HEX_VALUES, -1, sizeof(HEX_VALUES))
for _value in range(16):
    HEX_VALUES[<uint8_t>HEX[_value]] = _value
