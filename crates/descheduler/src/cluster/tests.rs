//! What is kept of objects.

use super::pod::Uid;

#[test]
fn a_uid_is_the_text_that_it_was_made_of_and_no_other() {
    let texts =
        ["00000000-0000-0000-0000-0000000000af", "0e1f2a3b-4c5d-6e7f-8a9b-acbdcedfe0f1", "uid-web", "", "af"];
    for made in texts {
        for text in texts.iter().copied().chain(["0E1F2A3B-4C5D-6E7F-8A9B-ACBDCEDFE0F1"]) {
            assert_eq!(Uid::of(made).is(text), made == text, "{made} and {text}");
        }
        assert_eq!(Uid::of(made).to_string(), made);
    }
}
