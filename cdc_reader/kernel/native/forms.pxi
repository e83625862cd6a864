# Identifiers and addresses in their text forms, written digit by digit.

ctypedef int (*Write)(const uint8_t *data, int32_t length, Growing *text) except -1 nogil

cdef const char *HEX = b"0123456789abcdef"


cdef int build_uuid(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    return build_strings(run, out, write_uuid, 36)


cdef int build_inet(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    return build_strings(run, out, write_inet, 16)


cdef int build_strings(
    const Run *run, ArrowArray *out, Write write, int64_t expected
) except -1 nogil:
    """The text of each cell that has one; `expected` is a guess at its length."""
    cdef Growing text = Growing(NULL, 0, 0)
    cdef int32_t *offsets
    cdef int64_t row
    cdef Cell cell
    begin(out, run.count, 3, 0)
    set_validity(out, run, 1)
    offsets = <int32_t *>new_buffer(out, 1, (run.count + 1) * 4)
    try:
        reserve(&text, run.count * expected + 1)
        for row in range(run.count):
            offsets[row] = <int32_t>text.size
            cell = run.cells[row]
            if cell.length > 0:
                write(run.body + cell.start, cell.length, &text)
        offsets[run.count] = <int32_t>text.size
        out.buffers[2] = text.data
        text.data = NULL
    finally:
        free(text.data)
    return 0


cdef int write_uuid(const uint8_t *data, int32_t length, Growing *text) except -1 nogil:
    """As 8-4-4-4-12 digits."""
    cdef uint8_t *to
    cdef int index
    if length != 16:
        return refuse_width(16, length)
    reserve(text, 36)
    to = text.data + text.size
    for index in range(16):
        if index == 4 or index == 6 or index == 8 or index == 10:
            to[0] = c"-"
            to += 1
        to[0] = HEX[data[index] >> 4]
        to[1] = HEX[data[index] & 15]
        to += 2
    text.size += 36
    return 0


cdef int write_inet(const uint8_t *data, int32_t length, Growing *text) except -1 nogil:
    reserve(text, 40)
    if length == 4:
        write_ipv4(data, text)
    elif length == 16:
        write_ipv6(data, text)
    else:
        return refuse_inet(length)
    return 0


cdef void write_ipv4(const uint8_t *data, Growing *text) noexcept nogil:
    cdef int index
    for index in range(4):
        if index:
            put(text, c".")
        put_number(text, data[index])


cdef void write_ipv6(const uint8_t *data, Growing *text) noexcept nogil:
    """As RFC 5952 says: the first longest run of two or more zero groups is left out, and an
    IPv4 address in IPv6's clothes shows its dots.
    """
    cdef int first = 8
    cdef int count = 0
    cdef int index = 0
    longest_zeros(data, &first, &count)
    if first == 0 and count == 5 and data[10] == 0xFF and data[11] == 0xFF:
        put(text, c":")
        put(text, c":")
        put_group(text, 0xFFFF)
        put(text, c":")
        write_ipv4(data + 12, text)
        return
    while index < 8:
        if index == first:
            put(text, c":")
            index += count
            if index == 8:
                put(text, c":")
            continue
        if index:
            put(text, c":")
        put_group(text, group(data, index))
        index += 1


cdef void longest_zeros(const uint8_t *data, int *first, int *count) noexcept nogil:
    """Where the first longest run of two or more zero groups is; left as they are if none is."""
    cdef int start = 0
    cdef int index
    for index in range(8):
        if group(data, index):
            start = index + 1
        elif index + 1 - start > max(count[0], 1):
            first[0] = start
            count[0] = index + 1 - start


cdef inline int group(const uint8_t *data, int index) noexcept nogil:
    return data[2 * index] << 8 | data[2 * index + 1]


cdef inline void put_group(Growing *text, int value) noexcept nogil:
    """Hexadecimal, without leading zeros."""
    cdef int shift = 12
    while shift and not value >> shift:
        shift -= 4
    while shift >= 0:
        put(text, HEX[value >> shift & 15])
        shift -= 4


cdef inline void put(Growing *text, uint8_t character) noexcept nogil:
    """One more byte, where room was reserved."""
    text.data[text.size] = character
    text.size += 1
