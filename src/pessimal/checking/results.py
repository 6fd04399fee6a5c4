"""What a check found, as Results."""

from pessimal.checking.checks import as_table
from pessimal.checking.served import Diagnosis
from pessimal.checking.served_checks import checks_of
from pessimal.checking.suite import Conformance
from pessimal.tables.result import Estimate, Result, weight_of


def conformance_results(found: Conformance, name: str) -> list[Result]:
    """What the suite found, as Results."""
    counts = counts_of(found)
    asked = counts["passed"] + counts["failed"]
    missed = f"; not: {', '.join(counts['failed_checks'][:4])}" if found.failed else ""
    differences = {
        f"measured/{c.check}": c.measured for c in found.checks if c.measured is not None
    }
    checks = Result(
        "conformance",
        as_table(found.checks),
        headline=f"{counts['passed']} of {asked} checks of {name} hold{missed}.",
        method="check",
        weight=weight_of(counts["failed"] / max(asked, 1)),
        estimate=Estimate("checks that hold", counts["passed"], asked, "checks"),
        summary=counts | differences,
    )
    if found.precision is None:
        return [checks]
    return [checks, Result("precision", found.precision, method="check")]


def counts_of(found: Conformance) -> dict:
    """What a list of runs should show."""
    passed = [check.passed for check in found.checks]
    return {
        "passed": passed.count(True),
        "failed": passed.count(False),
        "failed_checks": [check.check for check in found.failed],
    }


def served_result(found: Diagnosis, name: str) -> Result:
    """The diagnosis as a Result: one row a check."""
    checks = checks_of(found)
    failed = [check.check for check in checks if check.passed is False]
    faults = " and ".join(_name(part) for part in found.faults)
    headline = (
        "served right." if found.right else f"{faults}{' (harmless)' if found.harmless else ''}."
    )
    either = f" Or {' or '.join(found.remaining).replace('_', ' ')}." if found.remaining else ""
    return Result(
        "conformance",
        as_table(checks),
        headline=f"{name}: {headline}{either}",
        method="served",
        weight=weight_of(0.0 if found.right else 0.2 if found.harmless else 1.0),
        estimate=Estimate(
            "largest difference (SD)",
            found.own_difference / found.spread,
            len(found.served),
            "inputs",
        ),
        summary={
            "right": found.right,
            "harmless": found.harmless,
            "faults": [part.fault for part in found.faults],
            "remaining": list(found.remaining),
            "failed_checks": failed,
            "requests": len(found.served),
            "kendall": found.kendall,
            "largest_difference": found.own_difference,
        },
    )


def _name(part) -> str:
    return part.fault.replace("_", " ") + (f" ({part.detail})" if part.detail else "")
