"""What a check found, as Results."""

from typing import Any

from pessimal.checking.checks import as_table
from pessimal.checking.served import Diagnosis
from pessimal.checking.served_checks import checks_of
from pessimal.checking.served_faults import Part
from pessimal.checking.suite import Conformance
from pessimal.tables.result import Estimate, Result, weight_of


def conformance_results(conformance: Conformance, name: str) -> list[Result]:
    """What the suite measured, as Results."""
    counts = counts_of(conformance)
    n = counts["passed"] + counts["failed"]
    missed = f"; not: {', '.join(counts['failed_checks'][:4])}" if conformance.failed else ""
    measured = [check for check in conformance.checks if check.measured is not None]
    checks = Result(
        "conformance",
        as_table(conformance.checks),
        headline=f"{counts['passed']} of {n} checks of {name} hold{missed}.",
        method="check",
        weight=weight_of(counts["failed"] / max(n, 1)),
        estimate=Estimate("checks that hold", counts["passed"], n, "checks"),
        summary=counts | {f"measured/{check.check}": check.measured for check in measured},
    )
    if conformance.precision is None:
        return [checks]
    return [checks, Result("precision", conformance.precision, method="check")]


def counts_of(conformance: Conformance) -> dict[str, Any]:
    """What a list of runs should show."""
    passed = [check.passed for check in conformance.checks]
    return {
        "passed": passed.count(True),
        "failed": passed.count(False),
        "failed_checks": [check.check for check in conformance.failed],
    }


def served_result(diagnosis: Diagnosis, name: str) -> Result:
    """The diagnosis as a Result: one row a check."""
    checks = checks_of(diagnosis)
    failed = [check.check for check in checks if check.passed is False]
    faults = " and ".join(_name(part) for part in diagnosis.faults)
    harmless = " (harmless)" if diagnosis.harmless else ""
    headline = "served right." if diagnosis.right else f"{faults}{harmless}."
    summary: dict[str, Any] = {
        "right": diagnosis.right,
        "harmless": diagnosis.harmless,
        "faults": [part.fault for part in diagnosis.faults],
        "failed_checks": failed,
        "requests": len(diagnosis.served),
        "kendall": diagnosis.kendall,
        "largest_difference": diagnosis.own_difference,
    }
    return Result(
        "conformance",
        as_table(checks),
        headline=f"{name}: {headline}",
        method="served",
        weight=weight_of(0.0 if diagnosis.right else 0.2 if diagnosis.harmless else 1.0),
        estimate=Estimate(
            "largest difference (SD)",
            diagnosis.own_difference / diagnosis.spread,
            len(diagnosis.served),
            "inputs",
        ),
        summary=summary,
    )


def _name(part: Part) -> str:
    return part.fault.replace("_", " ") + (f" ({part.detail})" if part.detail else "")
