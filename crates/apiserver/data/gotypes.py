"""Reads the struct types of the Go modules that define the built-in kinds.

A definition of the OpenAPI data is a Go struct: `io.k8s.api.core.v1.Pod` is `Pod` of the package k8s.io/api/core/v1.
What the OpenAPI data leaves out is in the struct: which fields are pointers, and which are written when they hold
their zero value.
"""

import pathlib
import re

STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.M | re.S)
EMPTY_STRUCT = re.compile(r"^type (\w+) struct ?\{ ?\}$", re.M)
NAMED = re.compile(r"^type (\w+) ([\w.*\[\]]+)\s*$", re.M)
FIELD = re.compile(r"^\s*(?:(\w+)\s+)?([*\[\]\w.]+)\s+`([^`]*)`", re.M)
JSON_TAG = re.compile(r'json:"([^"]*)"')
PROTOBUF_TAG = re.compile(r'protobuf:"\w+,(\d+),')
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
SCALARS = {"string": "", "bool": False, "float64": 0, "byte": 0}
SCALARS.update({name: 0 for name in ("int", "int32", "int64", "uint", "uint8", "uint32", "uint64")})

# Types of other packages, by their usual import name: what a zero one is written as.
FOREIGN = {
    "types.UID": "", "types.NodeName": "", "resource.Quantity": "0", "intstr.IntOrString": 0,
    "runtime.RawExtension": None, "metav1.Time": None, "metav1.MicroTime": None,
}
ALIASES = {"metav1": META, "v1": "io.k8s.api.core.v1", "corev1": "io.k8s.api.core.v1"}


class Field:
    """One JSON field of a struct."""

    def __init__(self, name, go_type, omit_empty, omit_zero):
        self.name, self.go_type, self.omit_empty, self.omit_zero = name, go_type, omit_empty, omit_zero


class Package:
    def __init__(self, prefix, folder):
        self.prefix, self.structs, self.named = prefix, {}, {}
        for path in sorted(folder.glob("*.go")):
            if path.name.endswith("_test.go") or path.name.startswith(("generated", "zz_")):
                continue
            text = COMMENT.sub("", path.read_text())
            for name, body in STRUCT.findall(text):
                self.structs[name] = FIELD.findall(body)
            for name in EMPTY_STRUCT.findall(text):
                self.structs[name] = []
            for name, underlying in NAMED.findall(text):
                self.named.setdefault(name, underlying)


class Types:
    """The packages of k8s.io/api, apimachinery and apiextensions-apiserver, read when asked for."""

    def __init__(self, api, apimachinery, apiextensions):
        self.roots = {
            "io.k8s.api.": pathlib.Path(api),
            "io.k8s.apimachinery.": pathlib.Path(apimachinery),
            "io.k8s.apiextensions-apiserver.": pathlib.Path(apiextensions),
        }
        self.packages = {}

    def folder(self, prefix):
        for start, root in self.roots.items():
            if (prefix + ".").startswith(start):
                return root / (prefix + ".")[len(start):].replace(".", "/")
        raise KeyError(prefix)

    def package(self, prefix):
        if prefix not in self.packages:
            self.packages[prefix] = Package(prefix, self.folder(prefix))
        return self.packages[prefix]

    def qualify(self, prefix, name):
        """The package and bare name of a type mentioned in a package."""
        if "." not in name:
            return prefix, name
        alias, name = name.split(".")
        return ALIASES[alias], name

    def numbers(self, definition):
        """Protobuf field numbers with their JSON names; an inlined struct is a message of its own, given in place."""
        prefix, name = definition.rsplit(".", 1)
        numbers = {}
        for _, go_type, tags in self.package(prefix).structs[name]:
            json_tag, protobuf_tag = JSON_TAG.search(tags), PROTOBUF_TAG.search(tags)
            if not protobuf_tag:
                continue
            json_name = json_tag[1].split(",")[0]
            inlined = ".".join(self.qualify(prefix, go_type)) if not json_name else None
            numbers[protobuf_tag[1]] = self.numbers(inlined) if inlined else json_name
        return numbers

    def fields(self, definition):
        """The JSON fields of a struct, those of inlined structs among them."""
        prefix, name = definition.rsplit(".", 1)
        for field_name, go_type, tags in self.package(prefix).structs[name]:
            tag = JSON_TAG.search(tags)
            if not tag:
                continue
            json_name, *options = tag[1].split(",")
            if json_name == "-":
                continue
            if not json_name:
                if not go_type.startswith("*"):
                    yield from self.fields(".".join(self.qualify(prefix, go_type)))
                continue
            yield prefix, Field(json_name, go_type, "omitempty" in options, "omitzero" in options)

    def underlying(self, prefix, go_type):
        """The type with names resolved until it is a pointer, list, map, scalar, foreign type or struct."""
        while True:
            if go_type.startswith(("*", "[]", "map[")) or go_type in SCALARS:
                return prefix, go_type
            if go_type in FOREIGN:
                return prefix, go_type
            if prefix == META and go_type in ("Time", "MicroTime"):
                return prefix, "metav1." + go_type
            owner, name = self.qualify(prefix, go_type)
            if owner == META and name in ("Time", "MicroTime"):
                return owner, "metav1." + name
            package = self.package(owner)
            if name in package.structs:
                return owner, "struct"
            prefix, go_type = owner, package.named[name]

    def encoding(self, definition):
        """Which fields fall away when zero, and the zero values of those that are always written."""
        dropped, written = [], {}
        for prefix, field in self.fields(definition):
            _, kind = self.underlying(prefix, field.go_type)
            empty = kind.startswith(("[]", "map[")) or kind in SCALARS or kind in ("types.UID", "types.NodeName")
            if field.omit_zero or (field.omit_empty and empty):
                dropped.append(field.name)
            elif kind.startswith("*"):
                if not field.omit_empty:
                    written[field.name] = None
            elif kind.startswith(("[]", "map[")):
                written[field.name] = None
            elif kind == "struct":
                written[field.name] = {}
            else:
                written[field.name] = SCALARS[kind] if kind in SCALARS else FOREIGN[kind]
        return sorted(dropped), written
