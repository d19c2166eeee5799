from wattention.core.errors import UserError, unknown_name


def test_an_error_says_what_got_wanted_and_what_to_do():
    error = UserError("the window is too wide", got=4096, wanted="at most 1024", do="shorten it")
    assert str(error) == "the window is too wide\n  got: 4096\n  wanted: at most 1024\n  do this: shorten it"


def test_an_unknown_name_without_a_near_match_lists_the_names():
    error = unknown_name("preset", "zzz", ["gpt2", "tiny"])
    assert "wanted: gpt2, tiny" in str(error)
    assert "choose one of the 2 names above" in str(error)
