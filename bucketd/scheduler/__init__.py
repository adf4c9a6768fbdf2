"""The scheduler node: owns partitions, plans them, drains them, settles them."""
