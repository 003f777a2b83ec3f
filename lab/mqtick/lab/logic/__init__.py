"""mqtick: logic analysers, through sigrok-cli."""
