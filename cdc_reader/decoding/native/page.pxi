# A page: its plan, its rows cut into cells, its columns, and their export to Arrow.


cdef class Plan:
    """The plan for decoding pages with these columns into a struct array; pages share it."""

    cdef tuple columns
    cdef object schema
    cdef Shape shape

    def __cinit__(self, tuple columns):
        self.columns = columns
        self.schema = arrow_schema(columns)
        set_parts(&self.shape, [column.type for column in columns])

    def __dealloc__(self):
        free_parts(&self.shape)

    cdef batch(self, bytes body, int64_t offset):
        """Return the page as a RecordBatch, which takes over the array's memory."""
        cdef ArrowArray array
        memset(&array, 0, sizeof(ArrowArray))
        try:
            self.build(body, offset, &array)
            # The public capsule protocol would pass the schema too, with names that end at NUL.
            return pa.RecordBatch._import_from_c(<uintptr_t>&array, self.schema)
        finally:
            if array.release != NULL:
                array.release(&array)

    cdef int build(self, bytes body, int64_t offset, ArrowArray *array) except -1:
        """Build the page as one struct array; an error in a column names the column."""
        cdef const uint8_t *data = body
        cdef int64_t size = len(body)
        cdef int64_t column = -1
        try:
            with nogil:
                build_page(&self.shape, data, size, offset, array, &column)
        except DecodeError as error:
            if column < 0:
                raise
            wrong = self.columns[column]
            message = f"column {wrong.name} of type {wrong.type}: {error}"
            raise ColumnDecodeError(message) from error
        return 0


_plan = lru_cache(maxsize=128)(Plan)


cdef int build_page(
    const Shape *shape,
    const uint8_t *body,
    int64_t size,
    int64_t offset,
    ArrowArray *out,
    int64_t *column,
) except -1 nogil:
    """Build the page as one struct array; set `column` to the index of the one being built."""
    cdef int64_t width = shape.part_count
    cdef int64_t rows = row_count(body, size, offset, width)
    cdef Cell *cells = <Cell *>malloc(rows * width * sizeof(Cell) or 1)
    cdef Run run
    if cells == NULL:
        return refuse_memory()
    try:
        cut_rows(body, size, offset + 4, rows, width, cells)
        begin(out, rows if width else 0, 1, width)
        for column[0] in range(width):
            run = Run(body, cells + column[0] * rows, rows)
            shape.parts[column[0]].build(&shape.parts[column[0]], &run, out.children[column[0]])
    finally:
        free(cells)
    return 0


cdef int64_t row_count(
    const uint8_t *body, int64_t size, int64_t offset, int64_t width
) except -1 nogil:
    """Read the number of rows; check it against the bytes left."""
    cdef int32_t rows = 0
    if offset < 0 or offset + 4 > size:
        return refuse_row_count()
    load(body + offset, &rows)
    if rows < 0 or rows * width * 4 > size - offset - 4:
        return refuse_rows(size - offset - 4, rows)
    return rows


cdef extern from *:
    """
    #define CDC_CACHE_LINE 64
    #define CDC_FETCHED_AHEAD 1024
    #if defined(__GNUC__)
    #define CDC_FETCH(address) __builtin_prefetch(address)
    #else
    #define CDC_FETCH(address) (void)(address)
    #endif
    """
    const int64_t CACHE_LINE "CDC_CACHE_LINE"
    const int64_t FETCHED_AHEAD "CDC_FETCHED_AHEAD"
    void fetch_line "CDC_FETCH"(const void *address) noexcept nogil


cdef inline int64_t fetch(const uint8_t *body, int64_t at, int64_t end) noexcept nogil:
    """Prefetch the bytes that will be cut soon.

    A cell's start is known only once the previous cell has been read, so the processor cannot
    prefetch by itself. A page that another core has just received is not in this core's caches, so
    without prefetching, half of the time is spent waiting.
    """
    while at < end:
        fetch_line(body + at)
        at += CACHE_LINE
    return at


cdef int cut_rows(
    const uint8_t *body, int64_t size, int64_t at, int64_t rows, int64_t width, Cell *cells
) except -1 nogil:
    """Cut the rows into cells, column by column in memory."""
    cdef int64_t row
    cdef int32_t length = 0
    cdef int64_t fetched = at
    cdef Cell *cell
    for row in range(rows if width else 0):
        fetched = fetch(body, fetched, min(at + FETCHED_AHEAD, size))
        cell = cells + row
        for _ in range(width):
            if size - at < 4:
                return refuse_end(size)
            load(body + at, &length)
            at += 4
            cell.start = <int32_t>at
            cell.length = length
            cell += rows
            if length > 0:
                if length > size - at:
                    return refuse_value(length, at, size)
                at += length
    if at != size:
        return refuse_after(size - at)
    return 0
