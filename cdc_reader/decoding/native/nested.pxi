# Nested values: all cells of a run are cut first, then their parts become runs. The recursion
# is over types, never over rows.

ctypedef int (*Cut)(
    const Shape *shape, Cursor *cursor, Growing *first, Growing *second
) except -1 nogil


cdef int build_list(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    return build_sequence(shape, run, out, cut_list)


cdef int build_vector(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    return build_sequence(shape, run, out, cut_vector)


cdef int build_sequence(
    const Shape *shape, const Run *run, ArrowArray *out, Cut cut
) except -1 nogil:
    cdef Growing parts = Growing(NULL, 0, 0)
    cdef Run elements
    begin(out, run.count, 2, 1)
    set_validity(out, run, 1)
    try:
        flatten(shape, run, out, cut, &parts, NULL)
        elements = run_of(&parts, run.body)
        shape.parts[0].build(&shape.parts[0], &elements, out.children[0])
    finally:
        free(parts.data)
    return 0


cdef int build_map(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    cdef Growing[2] halves
    cdef ArrowArray *entries
    cdef Run part
    halves[0] = halves[1] = Growing(NULL, 0, 0)
    begin(out, run.count, 2, 1)
    set_validity(out, run, 1)
    entries = out.children[0]
    try:
        flatten(shape, run, out, cut_map, &halves[0], &halves[1])
        part = run_of(&halves[0], run.body)
        begin(entries, part.count, 1, 2)
        shape.parts[0].build(&shape.parts[0], &part, entries.children[0])
        if entries.children[0].null_count:
            return refuse_key()
        part = run_of(&halves[1], run.body)
        shape.parts[1].build(&shape.parts[1], &part, entries.children[1])
    finally:
        free(halves[0].data)
        free(halves[1].data)
    return 0


cdef int flatten(
    const Shape *shape, const Run *run, ArrowArray *out, Cut cut, Growing *first, Growing *second
) except -1 nogil:
    """Build the offsets, and cut all cells of a run into parts."""
    cdef int32_t *offsets = <int32_t *>new_buffer(out, 1, (run.count + 1) * 4)
    cdef int64_t row
    cdef Cursor cursor
    for row in range(run.count):
        offsets[row] = <int32_t>(first.size // <int64_t>sizeof(Cell))
        if run.cells[row].length > 0:
            cursor = cursor_in(run, row)
            cut(shape, &cursor, first, second)
    offsets[run.count] = <int32_t>(first.size // <int64_t>sizeof(Cell))
    return 0


cdef int cut_list(
    const Shape *shape, Cursor *cursor, Growing *elements, Growing *unused
) except -1 nogil:
    for _ in range(take_count(cursor, 1)):
        take_value(cursor, new_cell(elements))
    return expect_end(cursor, b"a collection")


cdef int cut_map(const Shape *shape, Cursor *cursor, Growing *keys, Growing *values) except -1 nogil:
    for _ in range(take_count(cursor, 2)):
        take_value(cursor, new_cell(keys))
        take_value(cursor, new_cell(values))
    return expect_end(cursor, b"a collection")


cdef int cut_vector(
    const Shape *shape, Cursor *cursor, Growing *elements, Growing *unused
) except -1 nogil:
    """Cut a vector's elements, which are packed or, if their width varies, follow their lengths.

    Each element takes at least a byte, so the size of the cell limits the work even if the
    dimension is huge.
    """
    cdef uint64_t size = shape.width
    for _ in range(shape.dimension):
        if shape.width == 0:
            take_vint(cursor, &size)
        take(cursor, size, new_cell(elements))
    return expect_end(cursor, b"a vector")


cdef int64_t take_count(Cursor *cursor, int64_t factor) except -1 nogil:
    """Take the number of elements, of `factor` parts each; check it against the bytes left."""
    cdef int32_t count = 0
    cdef int64_t size = cursor.end - cursor.at
    take_int(cursor, &count)
    if count < 0:
        return refuse_count(count)
    if count * factor * 4 > size:
        return refuse_parts(size, count * factor)
    return count


cdef int build_struct(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    """Build structs; fields missing at the end are null, because the value predates them."""
    cdef Cell *cells
    cdef Run part
    cdef int64_t row, field
    begin(out, run.count, 1, shape.part_count)
    set_validity(out, run, 0)
    cells = <Cell *>malloc(run.count * shape.part_count * sizeof(Cell) or 1)
    if cells == NULL:
        return refuse_memory()
    try:
        for row in range(run.count):
            cut_fields(run, row, shape.part_count, cells + row)
        for field in range(shape.part_count):
            part = Run(run.body, cells + field * run.count, run.count)
            shape.parts[field].build(&shape.parts[field], &part, out.children[field])
    finally:
        free(cells)
    return 0


cdef int cut_fields(const Run *run, int64_t row, int64_t count, Cell *to) except -1 nogil:
    """Cut a value into fields, and put each field into the run of that field."""
    cdef Cursor cursor
    cdef int64_t field = 0
    if run.cells[row].length > 0:
        cursor = cursor_in(run, row)
        while cursor.at < cursor.end and field < count:
            take_value(&cursor, to + field * run.count)
            field += 1
        if cursor.at < cursor.end:
            return refuse_fields(count, cursor.end - cursor.at)
    while field < count:
        to[field * run.count] = Cell(0, -1)
        field += 1
    return 0
