#!/usr/bin/env python3
"""Recomputes every golden vector of this directory with the Python standard library alone.

A second, independent reading of the rules in README.md: it shares no code with the Rust crates, so that neither is
its own judge. Exit status 0 and one line a file if all agree; 1 and every difference otherwise.
"""

import datetime
import decimal
import hashlib
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
# Exact for any exponent that a 64-bit integer or a double can need, and no silent rounding.
EXACT = decimal.Context(prec=1000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


class Refused(Exception):
    """A document that is refused: `stage`, and what the vector says of it."""

    def __init__(self, stage, what):
        super().__init__(stage, what)
        self.stage, self.what = stage, what


class Number(str):
    """A number as it was spelled."""


def members(pairs):
    if len({name for name, _ in pairs}) < len(pairs):
        raise Refused("json", "duplicate")
    return dict(pairs)


def text_problem(value):
    """Walks over every string of a document."""
    if isinstance(value, dict):
        return text_problem(list(value)) or text_problem(list(value.values()))
    if isinstance(value, list):
        return next(filter(None, map(text_problem, value)), None)
    if isinstance(value, str) and "\0" in value:
        return "nul"
    if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
        return "lone_surrogate"
    return None


def parse(source):
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("json", "utf8") from None

    def constant(_):
        raise ValueError("NaN and Infinity are not JSON")

    reader = json.JSONDecoder(
        object_pairs_hook=members, parse_int=Number, parse_float=Number, parse_constant=constant
    )
    text = text.strip(" \t\n\r")
    try:
        value, end = reader.raw_decode(text)
    except ValueError:
        raise Refused("json", "syntax") from None
    if end < len(text):
        raise Refused("json", "trailing")
    problem = text_problem(value)
    if problem:
        raise Refused("json", problem)
    return value


def integer(spelling):
    value = decimal.Decimal(spelling)
    # Beyond these it is no 64-bit integer whatever its digits; int() of 1e999999999 would never end.
    if value and (value.adjusted() > 18 or value.adjusted() < 0):
        return None
    whole = EXACT.to_integral_value(value)
    fits = whole == value and -(2**63) <= whole < 2**63
    return str(int(whole)) if fits else None


def double(spelling):
    """ECMA-262, Number::toString, from the shortest digits that `repr` finds."""
    value = float(spelling)
    if value in (float("inf"), float("-inf")):
        return None
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    _, digits, exponent = decimal.Decimal(repr(abs(value))).as_tuple()
    digits = "".join(map(str, digits))
    point = len(digits) + exponent
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    fraction = "." + digits[1:] if count > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"


ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def string(text):
    escape = lambda c: ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c)
    return '"' + "".join(map(escape, text)) + '"'


def order(name):
    return name.encode("utf-16-be")


def step(pointer, name):
    return pointer + "/" + str(name).replace("~", "~0").replace("/", "~1")


def join(parts):
    return "{" + ",".join(string(name) + ":" + parts[name] for name in sorted(parts, key=order)) + "}"


def free(value, at, faults):
    if isinstance(value, Number):
        whole = not re.search("[.eE]", value)
        text = integer(value) if whole else double(value)
        if text is None:
            faults.append(at)
            return "null"
        return text if whole or re.search("[.e]", text) else text + ".0"
    if isinstance(value, list):
        return "[" + ",".join(free(item, step(at, i), faults) for i, item in enumerate(value)) + "]"
    if isinstance(value, dict):
        return join({name: free(item, step(at, name), faults) for name, item in value.items()})
    return {None: "null", True: "true", False: "false"}[value] if not isinstance(value, str) else string(value)


def kind(value):
    if isinstance(value, Number):
        return "number"
    names = {bool: "boolean", str: "string", list: "array", dict: "object", type(None): "null"}
    return names[type(value)]


def canonical(schema, value, at, faults):
    """The canonical text of `value` under `schema`; faulty places are added to `faults`."""
    before = len(faults)
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    name = next(t for t in types if t != "null")
    if value is None and "null" in types:
        text = "null"
    elif kind(value) != ("number" if name == "integer" else name):
        faults.append(at)
        text = ""
    else:
        text = globals()["of_" + name](schema, value, at, faults)
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if listed is not None and len(faults) == before:
        plain = {k: v for k, v in schema.items() if k not in ("enum", "const")}
        if text not in [canonical(plain, item, "", []) for item in listed]:
            faults.append(at)
    return text


def bounds(schema, value, as_number, at, faults):
    tests = {
        "minimum": lambda bound: value >= bound,
        "maximum": lambda bound: value <= bound,
        "exclusiveMinimum": lambda bound: value > bound,
        "exclusiveMaximum": lambda bound: value < bound,
    }
    faults.extend(at for name, test in tests.items() if name in schema and not test(as_number(schema[name])))


def of_boolean(_schema, value, _at, _faults):
    return "true" if value else "false"


def of_integer(schema, value, at, faults):
    text = integer(value)
    if text is None:
        faults.append(at)
        return ""
    bounds(schema, int(text), lambda bound: int(integer(bound)), at, faults)
    return text


def of_number(schema, value, at, faults):
    text = double(value)
    if text is None:
        faults.append(at)
        return ""
    bounds(schema, float(value), float, at, faults)
    return text


def length(schema, count, unit, at, faults):
    if not int(schema.get("min" + unit, "0")) <= count <= int(schema.get("max" + unit, "9" * 18)):
        faults.append(at)


def of_string(schema, value, at, faults):
    length(schema, len(value), "Length", at, faults)
    if "pattern" in schema and not re.search(schema["pattern"], value):
        faults.append(at)
    return string(value)


def of_array(schema, value, at, faults):
    length(schema, len(value), "Items", at, faults)
    items = [canonical(schema["items"], item, step(at, i), faults) for i, item in enumerate(value)]
    return "[" + ",".join(items) + "]"


def of_object(schema, value, at, faults):
    declared = schema.get("properties", {})
    parts = {}
    for name, item in value.items():
        if name in declared:
            parts[name] = canonical(declared[name], item, step(at, name), faults)
        elif schema.get("additionalProperties") is True:
            parts[name] = free(item, step(at, name), faults)
        else:
            faults.append(step(at, name))
    for name, member in declared.items():
        if name not in value and "default" in member:
            parts[name] = canonical(member, member["default"], step(at, name), faults)
        elif name not in value and name in schema.get("required", []):
            faults.append(step(at, name))
    return join(parts)


def framed(*parts):
    """SHA-256 over the parts, each with its length in bytes before it as 64 bits, big-endian."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8")
        sha.update(len(data).to_bytes(8, "big") + data)
    return sha.digest()


def fingerprint(tool, text):
    return framed("counterfoil.intent.v1", tool, text).hex()


def intent(schema, source):
    faults = []
    text = canonical(schema, parse(source), "", faults)
    if faults:
        raise Refused("arguments", sorted(set(faults)))
    return text


def source(case, name="arguments"):
    return bytes.fromhex(case[name + "_hex"]) if name + "_hex" in case else case[name].encode("utf-8")


def check_canonical(case):
    text = intent(case["schema"], source(case))
    return {"canonical": text, "fingerprint": fingerprint(case["tool"], text)}


def check_refused(case):
    try:
        return {"stage": "none", "canonical": intent(case["schema"], source(case))}
    except Refused as refused:
        return {"stage": refused.stage, "problem" if refused.stage == "json" else "pointers": refused.what}


def check_pairs(case):
    tools = case["tool"] if isinstance(case["tool"], list) else [case["tool"]] * 2
    left, right = (fingerprint(t, intent(case["schema"], source(case, n))) for t, n in zip(tools, ("left", "right")))
    return {"same": left == right}


CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def dated(text):
    if re.fullmatch("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", text, re.I):
        millis = int(text.replace("-", "")[:12], 16)
    elif re.fullmatch(f"[0-7][{CROCKFORD}]{{25}}", text):
        millis = sum(CROCKFORD.index(c) * 32 ** (9 - i) for i, c in enumerate(text[:10]))
        if millis < 1577836800000:
            return None
    else:
        return None
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=millis)
    return at.isoformat(timespec="microseconds") + "Z"


def check_request_ids(case):
    valid = re.fullmatch("[A-Za-z0-9_-]{1,64}", case["id"]) is not None
    hexes = "-".join("[0-9a-f]{%d}" % n for n in (8, 4, 4, 4, 12))
    uuid = valid and re.fullmatch(hexes, case["id"]) is not None
    return {"valid": valid, "uuid": uuid, "dated": dated(case["id"]) if valid else None}


def check_callers(case):
    names = case["issuer"], case["subject"], case["workspace"]
    return {"caller": framed("counterfoil.caller.v1", *names)[:16].hex()}


def main():
    wrong = 0
    for name in ("canonical", "refused", "pairs", "request_ids", "callers"):
        # Schemas are read like arguments, so that no bound of theirs passes through a double.
        cases = parse((HERE / f"{name}.json").read_bytes())["cases"]
        for case in cases:
            got = globals()["check_" + name](case)
            differing = {key: value for key, value in got.items() if case.get(key) != value}
            if differing:
                wrong += 1
                print(f"{name}: {case['name']}: {differing}", file=sys.stderr)
        print(f"{name}: {len(cases)} cases")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
