"""`pessimal workspace`: a W&B workspace over the project's runs, defined in code and saved at the server."""

from pessimal.config.schema import WorkspaceConfig
from pessimal.errors import WorkError
from pessimal.tracking.client import check_server
from pessimal.tracking.workspace import import_workspaces, report, workspace


def run(config: WorkspaceConfig) -> None:
    """Save the workspace, and the report where asked; print their addresses.

    Raises ConfigError where the package for it is missing, WorkError where the server cannot be reached or refuses.
    """
    import_workspaces()
    check_server()
    tracking = config.tracking
    for make in (workspace, report) if config.report else (workspace,):
        made = make(
            tracking.project,
            entity=tracking.entity,
            prompts=list(config.prompts),
            attributes=config.attributes,
        )
        try:
            made.save()
        except Exception as error:  # the package raises whatever its client does
            raise WorkError(
                f"the server did not take the {make.__name__} of {tracking.entity}/{tracking.project}: {type(error).__name__}: {error}"
            ) from error
        print(made.url)
