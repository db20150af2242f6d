//! Arguments of calls that tools in C add: what does not fit is told with the routine, the parameter and the line.

use crate::c_tools::{END, atom, instrument, run, write_tool};
use crate::common::{Folder, stderr};

/// Statements of the instrument routine, what is told of them, and the line that is named.
const MISTAKES: [(&str, &str, u32); 8] = [
    (
        "AddCallProto(\"End(int, VALUE)\"); AddCallInst(i, InstBefore, \"End\", 1);",
        "AddCallInst: parameter 2 (VALUE) of `End`: it has no argument; the call has 1 of 2",
        4,
    ),
    (
        "AddCallProto(\"End(int, int, int, int, int, int, char*)\"); AddCallProgram(ProgramAfter, \"End\", 1, 2, 3, 4, 5, 6);",
        "AddCallProgram: parameter 7 (char*) of `End`: it has no argument; the call has 6 of 7",
        4,
    ),
    (
        "AddCallProto(\"End(int)\");\nAddCallProc(p, ProcBefore, \"End\", 1, 2);",
        "AddCallProc: the call has more arguments than the 1 parameters of `End`",
        5,
    ),
    (
        "AddCallProto(\"End(VALUE)\"); AddCallInst(i, InstBefore, \"End\", \"text\");",
        "AddCallInst: parameter 1 (VALUE) of `End`: there is no value 0x",
        4,
    ),
    (
        "AddCallProto(\"End(REGV)\"); AddCallInst(i, InstBefore, \"End\", 99);",
        "AddCallInst: parameter 1 (REGV) of `End`: there is no register 99",
        4,
    ),
    (
        "AddCallProto(\"End(char *)\"); AddCallBlock(GetFirstBlock(p), BlockBefore, \"End\", 5L);",
        "AddCallBlock: parameter 1 (char*) of `End`: no memory is at 0x5",
        4,
    ),
    (
        "AddCallProto(\"End(long[2])\"); AddCallProgram(ProgramAfter, \"End\", NULL);",
        "AddCallProgram: parameter 1 (long[2]) of `End`: it is NULL",
        4,
    ),
    (
        "AddCallProto(\"End(COUNTER)\"); AddCallInst(i, InstBefore, \"End\", 77L);",
        "AddCallInst: parameter 1 (COUNTER) of `End`: this is no data that a function has made",
        4,
    ),
];

#[test]
fn a_message_names_routine_parameter_and_line() {
    let folder = Folder::with_app();
    for (body, told, line) in MISTAKES {
        write_tool(&folder, "tool", &instrument(body), END);
        let output = run(&folder, &atom("./app tool.inst.c tool.anal.c -o out"), &[]);
        let text = stderr(&output);
        let place = format!("tool.inst.c, line {line})");
        assert_eq!(output.status.code(), Some(1), "{body}: {text}");
        assert!(
            text.contains(told) && text.contains(&place),
            "{body}: {text}"
        );
        assert!(!folder.join("out").exists(), "{body}");
    }
}

/// `AtomCallAt(file, line)` is what the macros call; the function in parentheses is called without it.
#[test]
fn functions_without_the_macros_add_calls_as_before() {
    let folder = Folder::with_app();
    let body = "(AddCallProto)(\"End(int)\"); (AddCallProgram)(ProgramAfter, \"End\", 1);";
    write_tool(
        &folder,
        "tool",
        &instrument(body),
        "void End(int n) { printf(\"%d\", n); }\n",
    );
    let output = run(&folder, &atom("./app tool.inst.c tool.anal.c -o out"), &[]);
    assert!(output.status.success(), "{}", stderr(&output));
}
