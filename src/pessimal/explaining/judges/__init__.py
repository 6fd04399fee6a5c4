"""Did an edit move the attribute it was asked to move? Who answers that, behind one protocol."""
