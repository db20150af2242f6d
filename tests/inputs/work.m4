define(`forloop', `pushdef(`$1', `$2')_forloop($@)popdef(`$1')')dnl
define(`_forloop', `$4`'ifelse($1, `$3', `', `define(`$1', incr($1))$0($@)')')dnl
forloop(`i', 1, 100, `eval(i * i) ')
define(`fact', `ifelse($1, 0, 1, `eval($1 * fact(decr($1)))')')fact(12)
patsubst(`hello world', `o\(.\)', `[\1]') len(`abcdef') substr(`abcdef', 2, 3) format(`%05d', 42) index(`abc', `c')
divert(1)later
divert(0)first
