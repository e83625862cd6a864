# Python objects made when they are read; see `cdc_reader.decoding.objects`.

from cpython.dict cimport PyDict_SetItem
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from cdc_reader.cql.values import FrozenDict

cdef extern from *:
    """
    #include <structmember.h>
    #define CDC_NEW(type, arguments) ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, arguments, NULL)
    #define CDC_ALLOCATE(type) PyType_GenericAlloc((PyTypeObject *)type, 0)
    #define CDC_IS_SLOT(descriptor) \
        (Py_IS_TYPE(descriptor, &PyMemberDescr_Type) \
         && ((PyMemberDescrObject *)descriptor)->d_member->type == T_OBJECT_EX)
    #define CDC_OFFSET(descriptor) ((PyMemberDescrObject *)descriptor)->d_member->offset
    #define CDC_SLOT(instance, offset) ((PyObject **)((char *)instance + (offset)))
    """
    object new "CDC_NEW"(object type, tuple arguments)
    object allocate "CDC_ALLOCATE"(object type)
    bint is_slot "CDC_IS_SLOT"(object descriptor)
    Py_ssize_t offset_of "CDC_OFFSET"(object descriptor)
    PyObject **slot_of "CDC_SLOT"(object instance, Py_ssize_t offset)

cdef object FROZEN_DICT = FrozenDict


cdef Py_ssize_t slot_offset(type owner, str name) except -1:
    """Return the offset of a slot that the class itself defines."""
    slot = vars(owner).get(name)
    if not is_slot(slot):
        raise TypeError(f"expected a slot {name!r} of {owner}, found {slot!r}")
    return offset_of(slot)


cdef inline int fill_slot(object instance, Py_ssize_t offset, object value) except -1:
    """Fill a slot, which may have been filled meanwhile."""
    cdef PyObject **place = slot_of(instance, offset)
    cdef PyObject *former = place[0]
    Py_INCREF(value)
    place[0] = <PyObject *>value
    Py_XDECREF(former)
    return 0


cdef type made_as(type base, type kind):
    """Return `kind`; raise TypeError unless its objects may be made without calling it."""
    if not issubclass(kind, base) or kind.__new__ is not base.__new__:
        raise TypeError(f"expected a class that makes its objects as {base} does, found {kind}")
    return kind


cdef inline object item(object sequence, Py_ssize_t index):
    if type(sequence) is Values:
        return (<Values>sequence).at(index)
    if type(sequence) is Mappings:
        return (<Mappings>sequence).at(index)
    if type(sequence) is Objects:
        return (<Objects>sequence).at(index)
    if type(sequence) is Tuples:
        return (<Tuples>sequence).at(index)
    if type(sequence) is list:
        return (<list>sequence)[index]
    return sequence[index]


@cython.no_gc
cdef class Wrapper:
    """See `cdc_reader.decoding.objects.Wrapper`."""

    cdef object __weakref__
    cdef readonly object value

    __match_args__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return self.value == (<Wrapper>other).value

    def __hash__(self):
        return hash((type(self), self.value))

    def __repr__(self):
        return f"{type(self).__qualname__}(value={self.value!r})"

    def __reduce__(self):
        return type(self), (self.value,)


cdef class Field:
    """See `cdc_reader.decoding.objects.Field`."""

    cdef str name
    cdef object values

    def __init__(self, str name not None, values):
        self.name = name
        self.values = values

    cpdef put(self, mapping, Py_ssize_t row):
        PyDict_SetItem(mapping, self.name, self.value(row))

    cdef inline object value(self, Py_ssize_t row):
        return None if self.values is None else item(self.values, row)


cdef class GivenField(Field):
    """See `cdc_reader.decoding.objects.GivenField`."""

    cdef object nulls, null
    cdef type kind

    def __init__(self, str name not None, values, nulls, null=None, type kind=None):
        super().__init__(name, values)
        self.nulls = nulls
        self.null = null
        self.kind = None if kind is None else made_as(Wrapper, kind)

    cpdef put(self, mapping, Py_ssize_t row):
        value = self.value(row)
        if value is not None:
            PyDict_SetItem(mapping, self.name, value if self.kind is None else self.made(value))
        elif self.nulls is not None and item(self.nulls, row):
            PyDict_SetItem(mapping, self.name, self.null)

    cdef inline object made(self, value):
        cdef Wrapper made = new(self.kind, ())
        made.value = value
        return made


@cython.final
cdef class Mappings:
    """See `cdc_reader.decoding.objects.Mappings`."""

    cdef bytes kinds
    cdef tuple fields
    cdef list rows
    cdef object other

    def __init__(self, bytes kinds not None, fields):
        self.kinds = kinds
        self.fields = tuple(map(tuple, fields))

    def picked(self, list rows not None, other=None):
        cdef Mappings made = Mappings(self.kinds, self.fields)
        made.rows = rows
        made.other = other
        return made

    def __getitem__(self, Py_ssize_t index):
        return self.at(index)

    cdef object at(self, Py_ssize_t index):
        cdef Py_ssize_t row = index if self.rows is None else self.rows[index]
        cdef Py_ssize_t kind
        if row < 0:
            return None if self.other is None else self.other(index)
        kind = self.kinds[row]
        made = new(FROZEN_DICT, ())
        for field in <tuple>self.fields[kind]:
            if isinstance(field, Field):
                (<Field>field).put(made, row)
            else:
                field.put(made, row)
        return made


@cython.final
cdef class Objects:
    """See `cdc_reader.decoding.objects.Objects`."""

    cdef type kind
    cdef list offsets, columns

    def __init__(self, type kind not None, columns):
        if kind.__new__ is not object.__new__:
            raise TypeError(f"expected a class that makes its objects as object does, found {kind}")
        self.offsets = [slot_offset(kind, name) for name in columns]
        self.columns = list(columns.values())
        self.kind = kind

    def __getitem__(self, Py_ssize_t index):
        return self.at(index)

    cdef object at(self, Py_ssize_t index):
        cdef Py_ssize_t place
        if self.kind is None:
            raise AttributeError(f"{type(self)} was not initialized")
        made = new(self.kind, ())
        for place in range(len(self.columns)):
            column = self.columns[place]
            fill_slot(made, self.offsets[place], None if column is None else item(column, index))
        return made


@cython.final
cdef class Tuples:
    """See `cdc_reader.decoding.objects.Tuples`."""

    cdef object values
    cdef list rows, bounds

    def __init__(self, values, list rows=None, list bounds=None):
        self.values = values
        self.rows = rows
        self.bounds = bounds

    def __getitem__(self, Py_ssize_t index):
        return self.at(index)

    cdef object at(self, Py_ssize_t index):
        cdef Py_ssize_t first, end
        if self.rows is None:
            return (item(self.values, index),)
        first, end = self.bounds[index], self.bounds[index + 1]
        return tuple([item(self.values, self.rows[place]) for place in range(first, end)])


@cython.final
cdef class Source:
    """A page, and the sequences that were read from it, indexed by the place of their `entry`."""

    cdef object page
    cdef list sequences

    def __init__(self, page):
        self.page = page
        self.sequences = [None] * places


cdef class Entry:
    """See `cdc_reader.decoding.objects.Entry`."""

    cdef object __weakref__
    cdef Source source
    cdef readonly Py_ssize_t _number

    def __init__(self, page, Py_ssize_t number):
        self.source = Source(page)
        self._number = number

    @property
    def _page(self):
        return self.made_from().page

    cdef inline Source made_from(self):
        if self.source is None:
            raise AttributeError(f"{type(self)} was not initialized")
        return self.source


cdef Py_ssize_t places = 0  # the number of attributes declared as `entry`


cdef class entry:
    """See `cdc_reader.decoding.objects.entry`."""

    cdef str name, doc
    cdef type owner
    cdef bint is_kept
    cdef Py_ssize_t offset, place

    def __init__(self, str name not None, str doc not None, *, bint kept=True):
        global places
        self.name = name
        self.doc = doc
        self.is_kept = kept
        self.place = places
        places += 1

    @property
    def __doc__(self):
        return self.doc

    def __set_name__(self, type owner not None, str name not None):
        if self.is_kept:
            self.offset = slot_offset(owner, f"_{name}")
        self.owner = made_as(Entry, owner)

    def __get__(self, instance, owner):
        cdef PyObject *found = NULL
        cdef Source source
        if instance is None:
            return self
        if self.owner is None or not isinstance(instance, self.owner):
            raise TypeError(f"expected an instance of {self.owner}, found {type(instance)}")
        if self.is_kept:
            found = slot_of(instance, self.offset)[0]
        if found != NULL:
            return <object>found
        source = (<Entry>instance).made_from()
        sequence = source.sequences[self.place]
        if sequence is None:
            sequence = source.sequences[self.place] = getattr(source.page, self.name)
        made = item(sequence, (<Entry>instance)._number)
        if self.is_kept:
            fill_slot(instance, self.offset, made)
        return made


cdef class Entries:
    """See `cdc_reader.decoding.objects.Entries`."""

    cdef type kind
    cdef Source source
    cdef Py_ssize_t number, count, stop

    def __init__(self, type kind not None, page, Py_ssize_t count):
        self.kind = made_as(Entry, kind)
        self.source = Source(page)
        self.count = self.stop = count

    @property
    def page(self):
        if self.source is None:
            raise AttributeError(f"{type(self)} was not initialized")
        return self.source.page

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t number):
        if not 0 <= number < self.count:
            raise IndexError(f"found number {number}, expected one below {self.count}")
        return self.made(number)

    def __iter__(self):
        return self

    def __next__(self):
        if self.number >= self.stop:
            raise StopIteration
        self.number += 1
        return self.made(self.number - 1)

    def end(self):
        self.stop = 0

    cdef inline Entry made(self, Py_ssize_t number):
        cdef Entry made = new(self.kind, ())
        made.source = self.source
        made._number = number
        return made
