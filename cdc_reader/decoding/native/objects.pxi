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
    #define CDC_SLOT(instance, slot) \
        ((PyObject **)((char *)instance + ((PyMemberDescrObject *)slot)->d_member->offset))
    """
    object new "CDC_NEW"(object type, tuple arguments)
    object allocate "CDC_ALLOCATE"(object type)
    bint is_slot "CDC_IS_SLOT"(object descriptor)
    PyObject **slot_of "CDC_SLOT"(object instance, object slot)

cdef object FROZEN_DICT = FrozenDict


cdef object member(type owner, str name):
    """Return the descriptor of a slot of this class itself."""
    slot = vars(owner).get(name)
    if not is_slot(slot):
        raise TypeError(f"expected a slot {name!r} of {owner}, found {slot!r}")
    return slot


cdef inline int fill_slot(object instance, object slot, object value) except -1:
    """Fill a slot, which may have been filled meanwhile."""
    cdef PyObject **place = slot_of(instance, slot)
    cdef PyObject *former = place[0]
    Py_INCREF(value)
    place[0] = <PyObject *>value
    Py_XDECREF(former)
    return 0


cdef type slotted(type kind):
    """Return the class, whose instances may be made without calling it."""
    if kind.__new__ is not object.__new__ or kind.__base__ is not object:
        raise TypeError(f"expected a class that makes its instances as object does, found {kind}")
    return kind


cdef inline object item(object sequence, Py_ssize_t index):
    if type(sequence) is Values:
        return (<Values>sequence).at(index)
    if type(sequence) is Mappings:
        return (<Mappings>sequence).at(index)
    return sequence[index]


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

    cdef object nulls, null, slot
    cdef type kind

    def __init__(self, str name not None, values, nulls, null=None, type kind=None):
        super().__init__(name, values)
        self.nulls = nulls
        self.null = null
        if kind is not None:
            self.kind = slotted(kind)
            [attribute] = attrs.fields(kind)
            self.slot = member(kind, attribute.name)

    cpdef put(self, mapping, Py_ssize_t row):
        value = self.value(row)
        if value is not None:
            PyDict_SetItem(mapping, self.name, value if self.kind is None else self.made(value))
        elif self.nulls is not None and item(self.nulls, row):
            PyDict_SetItem(mapping, self.name, self.null)

    cdef inline object made(self, value):
        made = allocate(self.kind)
        fill_slot(made, self.slot, value)
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


cdef class entry:
    """See `cdc_reader.decoding.objects.entry`."""

    cdef str sequence, doc
    cdef type owner
    cdef object page, number, slot

    def __init__(self, str name not None, str doc not None):
        self.sequence = name
        self.doc = doc

    @property
    def __doc__(self):
        return self.doc

    def __set_name__(self, type owner not None, str name not None):
        self.page = member(owner, "_page")
        self.number = member(owner, "_number")
        self.slot = member(owner, f"_{name}")
        self.owner = owner

    def __get__(self, instance, owner):
        cdef PyObject *found
        if instance is None:
            return self
        if self.owner is None or not isinstance(instance, self.owner):
            raise TypeError(f"expected an instance of {self.owner}, found {type(instance)}")
        found = slot_of(instance, self.slot)[0]
        if found != NULL:
            return <object>found
        made = item(getattr(self.filled(instance, self.page), self.sequence),
                    self.filled(instance, self.number))
        fill_slot(instance, self.slot, made)
        return made

    cdef inline object filled(self, instance, slot):
        cdef PyObject *found = slot_of(instance, slot)[0]
        if found == NULL:
            raise AttributeError(f"{self.owner} has no {slot}")
        return <object>found


cdef class entries:
    """See `cdc_reader.decoding.objects.entries`."""

    cdef type kind
    cdef object page, page_slot, number_slot
    cdef Py_ssize_t number, count

    def __init__(self, type kind not None, page, Py_ssize_t count):
        self.kind = slotted(kind)
        self.page_slot = member(kind, "_page")
        self.number_slot = member(kind, "_number")
        self.page = page
        self.count = count

    def __iter__(self):
        return self

    def __next__(self):
        if self.number >= self.count:
            raise StopIteration
        made = allocate(self.kind)
        fill_slot(made, self.page_slot, self.page)
        fill_slot(made, self.number_slot, self.number)
        self.number += 1
        return made
