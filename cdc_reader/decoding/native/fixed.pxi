# Types of fixed width: numbers, booleans, dates and timestamps. Durations are here too, because
# they consist of three numbers.

cdef extern from *:
    """
    #define CDC_SIGN_BIT ((int32_t)0x80000000u)
    """
    const int32_t SIGN_BIT "CDC_SIGN_BIT"
    const int64_t INT32_MAX
    const int64_t INT32_MIN

ctypedef fused Integer:
    int8_t
    int16_t
    int32_t
    int64_t


cdef inline void load(const uint8_t *data, Integer *value) noexcept nogil:
    """Load a big-endian integer; compilers turn this into one load and one byte swap."""
    if Integer is int8_t:
        value[0] = <int8_t>data[0]
    elif Integer is int16_t:
        value[0] = <int16_t>(data[0] << 8 | data[1])
    elif Integer is int32_t:
        value[0] = <int32_t>(
            <uint32_t>data[0] << 24 | <uint32_t>data[1] << 16 | <uint32_t>data[2] << 8 | data[3]
        )
    else:
        value[0] = <int64_t>(
            <uint64_t>data[0] << 56 | <uint64_t>data[1] << 48 | <uint64_t>data[2] << 40
            | <uint64_t>data[3] << 32 | <uint64_t>data[4] << 24 | <uint64_t>data[5] << 16
            | <uint64_t>data[6] << 8 | data[7]
        )


cdef int fill(Integer *values, const Run *run) except -1 nogil:
    """Store each cell's number; 0 for null and empty cells."""
    cdef int64_t row
    cdef int32_t length
    for row in range(run.count):
        length = run.cells[row].length
        if length == <int32_t>sizeof(Integer):
            load(run.body + run.cells[row].start, values + row)
        elif length <= 0:
            values[row] = 0
        else:
            return refuse_width(sizeof(Integer), length)
    return 0


cdef int build_fixed(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    """Build integers and floats by reversing their bytes."""
    cdef void *values
    begin(out, run.count, 2, 0)
    set_validity(out, run, 1)
    values = new_buffer(out, 1, run.count * shape.width)
    if shape.width == 1:
        return fill(<int8_t *>values, run)
    if shape.width == 2:
        return fill(<int16_t *>values, run)
    if shape.width == 4:
        return fill(<int32_t *>values, run)
    return fill(<int64_t *>values, run)


cdef int build_date(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    """Build dates: unsigned days, in which 2^31 is 1970-01-01, by flipping the top bit."""
    cdef int32_t *days
    cdef int64_t row
    build_fixed(shape, run, out)
    days = <int32_t *>out.buffers[1]
    for row in range(run.count):
        days[row] ^= SIGN_BIT
    return 0


cdef int build_boolean(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    cdef bint fits = True
    cdef int64_t row
    cdef uint8_t *bits
    begin(out, run.count, 2, 0)
    set_validity(out, run, 1)
    bits = <uint8_t *>new_buffer(out, 1, (run.count + 7) // 8)
    for row in range(run.count):
        fits &= run.cells[row].length <= 1
    if not fits:
        return refuse_boolean()
    for row in range(0, run.count - 7, 8):
        bits[row >> 3] = truth(run, row, 8)
    if run.count & 7:
        row = run.count & ~7
        bits[row >> 3] = truth(run, row, run.count - row)
    return 0


cdef inline uint8_t truth(const Run *run, int64_t row, int64_t count) noexcept nogil:
    """Return the bits of up to eight cells from `row` on; null and empty cells are false."""
    cdef uint8_t bits = 0
    cdef int64_t index
    for index in range(count):
        if run.cells[row + index].length > 0:
            bits |= (run.body[run.cells[row + index].start] != 0) << index
    return bits


cdef int build_duration(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    """Build durations: months (32 bits), days (32 bits) and nanoseconds (64 bits).

    A null is marked in the duration, not in its parts.
    """
    cdef int64_t row
    cdef int64_t months, days
    cdef int64_t *nanoseconds
    cdef int32_t *narrow[2]
    cdef bint fits = True
    cdef Cursor cursor
    begin(out, run.count, 1, 3)
    set_validity(out, run, 1)
    for index in range(3):
        begin(out.children[index], run.count, 2, 0)
    narrow[0] = <int32_t *>new_buffer(out.children[0], 1, run.count * 4)
    narrow[1] = <int32_t *>new_buffer(out.children[1], 1, run.count * 4)
    nanoseconds = <int64_t *>new_buffer(out.children[2], 1, run.count * 8)
    for row in range(run.count):
        months = days = nanoseconds[row] = 0
        if run.cells[row].length > 0:
            cursor = cursor_in(run, row)
            take_signed_vint(&cursor, &months)
            take_signed_vint(&cursor, &days)
            take_signed_vint(&cursor, nanoseconds + row)
            expect_end(&cursor, b"a duration")
        fits &= INT32_MIN <= months <= INT32_MAX and INT32_MIN <= days <= INT32_MAX
        narrow[0][row] = <int32_t>months
        narrow[1][row] = <int32_t>days
    return 0 if fits else refuse_duration()
