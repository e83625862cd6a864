"""CDC generations, in each form in which clusters publish them."""
