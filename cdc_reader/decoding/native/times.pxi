# The times of time UUIDs in the text form that `build_uuid` writes.


def micros_of(times):
    """Return the microseconds since 1970 of each time UUID; see `cdc_reader.decoding.python`."""
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
    cdef uint64_t wrong = 0
    cdef int64_t row
    for row in range(count):
        if offsets[row + 1] - offsets[row] != UUID_LENGTH:
            return refuse_uuid()
        found[row] = <int64_t>(ticks_of(data + offsets[row], &wrong) // TICKS) - UNIX_EPOCH_MICROS
    return refuse_uuid() if wrong else 0


cdef inline uint64_t ticks_of(const uint8_t *text, uint64_t *wrong) noexcept nogil:
    """Return the 60-bit time of a time UUID's text.

    The text has the low digits of the time first. The version precedes the high digits.
    """
    cdef uint64_t upper = two_fours(text + 9, text + 14, wrong)
    return (upper & <uint64_t>0xFFF) << 48 | upper >> 16 << 32 | eight_digits(text, wrong)


cdef inline uint64_t eight_digits(const uint8_t *text, uint64_t *wrong) noexcept nogil:
    cdef int64_t digits = 0
    load(text, &digits)
    return hexadecimal(<uint64_t>digits, wrong)


cdef inline uint64_t two_fours(
    const uint8_t *text, const uint8_t *more, uint64_t *wrong
) noexcept nogil:
    """Return the value of eight digits: four at `text`, then four at `more`."""
    cdef int32_t upper = 0
    cdef int32_t lower = 0
    load(text, &upper)
    load(more, &lower)
    return hexadecimal(<uint64_t><uint32_t>upper << 32 | <uint32_t>lower, wrong)


cdef extern from *:
    """
    #define CDC_EACH(byte) (UINT64_C(0x0101010101010101) * (byte))
    """
    uint64_t each "CDC_EACH"(uint64_t byte) noexcept nogil


cdef inline uint64_t hexadecimal(uint64_t digits, uint64_t *wrong) noexcept nogil:
    """Return the value of eight hexadecimal digits; the first digit is in the highest byte.

    Sets bits in `wrong` if a byte is not a digit. Handles all eight bytes at once: a byte is a
    digit if its value is below 16 and encodes back to the same byte.
    """
    cdef uint64_t values = (digits & each(0x0F)) + (digits >> 6 & each(1)) * <uint64_t>9
    cdef uint64_t spelt = values + each(c"0") + (values + each(6) >> 4 & each(1)) * <uint64_t>39
    wrong[0] |= spelt ^ digits | values & each(0xF0)
    values = (values | values >> 4) & <uint64_t>0x00FF00FF00FF00FF
    values = (values | values >> 8) & <uint64_t>0x0000FFFF0000FFFF
    return (values | values >> 16) & <uint64_t>0xFFFFFFFF


cdef enum:
    TICKS = 10  # per microsecond; a constant, so that the compiler can avoid the division

cdef int64_t UNIX_EPOCH_MICROS = UNIX_EPOCH_TICKS // TICKS  # without a remainder
