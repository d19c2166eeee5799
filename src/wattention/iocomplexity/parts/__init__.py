"""What schedules share: products, passes and bodies that several of them compose, with their exact costs."""
