"""The names that a misspelt one probably means."""

from torchgauge.similar import did_you_mean, similar


def test_the_most_similar_name_comes_first_whatever_the_case():
    assert similar("RESNET18", ["vgg", "ResNet50", "ResNet18"]) == ["ResNet18", "ResNet50"]


def test_a_name_like_none_of_them_has_no_similar_one():
    assert similar("xyz", ["latency", "memory"]) == []


def test_no_more_names_than_asked_for():
    names = [f"layer{number}" for number in range(9)]
    assert len(similar("layer", names)) == 3
    assert similar("layer4", names, limit=1) == ["layer4"]


def test_the_question_names_all_of_them():
    assert did_you_mean(["a.py", "b.py"], "Check the path.") == "Did you mean a.py or b.py?"
    assert did_you_mean([], "Check the path.") == "Check the path."
