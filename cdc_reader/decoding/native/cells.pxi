# Cells, their positions in the body, and a cursor that cuts them. Positions fit into 32 bits,
# because `parse_metadata` rejects longer bodies.


cdef struct Cell:
    int32_t start
    int32_t length  # negative for null


cdef struct Run:
    const uint8_t *body
    const Cell *cells
    int64_t count


cdef struct Cursor:
    const uint8_t *body
    int64_t origin  # offsets in messages count from here
    int64_t at
    int64_t end


cdef inline Cursor cursor_in(const Run *run, int64_t row) noexcept nogil:
    """Return a cursor over a cell that is not null."""
    cdef Cursor cursor
    cursor.body = run.body
    cursor.origin = cursor.at = run.cells[row].start
    cursor.end = cursor.at + run.cells[row].length
    return cursor


cdef inline int take(Cursor *cursor, uint64_t size, Cell *cell) except -1 nogil:
    """Take the next `size` bytes as a cell."""
    cdef int64_t left = cursor.end - cursor.at
    if size > <uint64_t>left:
        return refuse_take(size, cursor.at - cursor.origin, left)
    cell.start = <int32_t>cursor.at
    cell.length = <int32_t>size
    cursor.at += <int64_t>size
    return 0


cdef inline int take_int(Cursor *cursor, int32_t *value) except -1 nogil:
    cdef Cell cell = Cell(0, 0)
    take(cursor, 4, &cell)
    load(cursor.body + cell.start, value)
    return 0


cdef inline int take_value(Cursor *cursor, Cell *cell) except -1 nogil:
    """Take a length and that many bytes as a cell; null for a negative length."""
    cdef int32_t length = 0
    take_int(cursor, &length)
    if length >= 0:
        return take(cursor, length, cell)
    cell.start = <int32_t>cursor.at
    cell.length = -1
    return 0


cdef inline int take_vint(Cursor *cursor, uint64_t *value) except -1 nogil:
    """Take an unsigned vint: the first byte's leading 1 bits count the bytes that follow."""
    cdef Cell cell = Cell(0, 0)
    cdef int extra = 0
    cdef int index
    cdef uint8_t first
    take(cursor, 1, &cell)
    first = cursor.body[cell.start]
    while extra < 8 and first & (0x80 >> extra):
        extra += 1
    take(cursor, extra, &cell)
    value[0] = first & (0xFF >> extra)
    for index in range(extra):
        value[0] = value[0] << 8 | cursor.body[cell.start + index]
    return 0


cdef inline int take_signed_vint(Cursor *cursor, int64_t *value) except -1 nogil:
    """Take a zigzag-encoded variable-length integer."""
    cdef uint64_t encoded = 0
    take_vint(cursor, &encoded)
    value[0] = <int64_t>(encoded >> 1) ^ -<int64_t>(encoded & 1)
    return 0


cdef inline int expect_end(const Cursor *cursor, const char *what) except -1 nogil:
    if cursor.at != cursor.end:
        return refuse_rest(what, cursor.end - cursor.at)
    return 0
