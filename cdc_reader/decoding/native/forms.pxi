# Identifiers and addresses in their text forms, written digit by digit.

ctypedef int (*Write)(const uint8_t *data, int32_t length, Growing *text) except -1 nogil

cdef enum:
    UUID_LENGTH = 36

cdef const char *HEX = b"0123456789abcdef"
cdef uint8_t[512] HEX_PAIRS  # the two digits of each byte
for _value in range(256):
    HEX_PAIRS[2 * _value] = HEX[_value >> 4]
    HEX_PAIRS[2 * _value + 1] = HEX[_value & 15]


cdef int build_uuid(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    """Build UUIDs as text, in groups of 8-4-4-4-12 digits."""
    cdef int64_t row
    cdef int32_t size = 0
    cdef int32_t *offsets
    cdef uint8_t *text
    begin(out, run.count, 3, 0)
    set_validity(out, run, 1)
    offsets = <int32_t *>new_buffer(out, 1, (run.count + 1) * 4)
    text = <uint8_t *>new_buffer(out, 2, run.count * UUID_LENGTH)
    for row in range(run.count):
        offsets[row] = size
        if run.cells[row].length == 16:
            write_uuid(run.body + run.cells[row].start, text + size)
            size += UUID_LENGTH
        elif run.cells[row].length > 0:
            return refuse_width(16, run.cells[row].length)
    offsets[run.count] = size
    return 0


cdef inline void write_uuid(const uint8_t *data, uint8_t *text) noexcept nogil:
    write_bytes(data, 4, text)
    text[8] = c"-"
    write_bytes(data + 4, 2, text + 9)
    text[13] = c"-"
    write_bytes(data + 6, 2, text + 14)
    text[18] = c"-"
    write_bytes(data + 8, 2, text + 19)
    text[23] = c"-"
    write_bytes(data + 10, 6, text + 24)


cdef inline void write_bytes(const uint8_t *data, int count, uint8_t *text) noexcept nogil:
    """Write each byte as two digits."""
    cdef int index
    for index in range(count):
        memcpy(text + 2 * index, HEX_PAIRS + 2 * data[index], 2)


cdef int build_inet(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    return build_strings(run, out, write_inet, 16)


cdef int build_strings(
    const Run *run, ArrowArray *out, Write write, int64_t expected
) except -1 nogil:
    """Build the text of each cell that is not null or empty; `expected` is its estimated length."""
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
    """Write an address in the form of RFC 5952.

    The first longest run of two or more zero groups is left out, and an IPv4-mapped address
    ends in dotted form.
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
    """Find the first longest run of two or more zero groups; no change if there is none."""
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
    """Write a group in hexadecimal, without leading zeros."""
    cdef int shift = 12
    while shift and not value >> shift:
        shift -= 4
    while shift >= 0:
        put(text, HEX[value >> shift & 15])
        shift -= 4


cdef inline void put(Growing *text, uint8_t character) noexcept nogil:
    """Append a byte; the caller has reserved room for it."""
    text.data[text.size] = character
    text.size += 1
