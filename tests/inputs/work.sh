# Work for a POSIX shell.
i=0; s=0
while [ $i -lt 1500 ]; do i=$((i + 1)); case $i in *7) continue ;; *[02468]) s=$((s + i)) ;; *) s=$((s - 1)) ;; esac; done
echo "$i $s"
f() { local x="$1"; [ "$x" -le 1 ] && { echo 1; return; }; echo $((x * $(f $((x - 1))))); }
f 6
for w in alpha beta "gamma delta"; do echo "${w%a*}:${w#*l}:${#w}"; done
set -- a b c; shift; echo "$# $* ${4:-none}"
cat <<END | while read -r line; do echo "<$line>"; done
one \$x $((1 + 1))
two `echo sub`
END
(echo in subshell; exit 3); echo $?
echo hello | { read x; echo "read $x"; }
sleep 0.01 & wait $!; echo $?
trap 'echo on exit' EXIT
eval 'y=5'; echo $((y << 3)); printf '%s-%03d\n' x 7; echo *nothing*
unset z; echo "${z=default}" "${z+set}"; command -v nonexistent || echo missing >&2
exit 9
