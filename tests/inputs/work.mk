NAMES := $(shell seq 1 12)
OBJS := $(patsubst %,out%,$(NAMES))
all: $(OBJS) sum
out%:
	@echo making $@; echo $* > $@
sum: $(OBJS)
	@cat $(sort $^) | wc -l > $@; echo $(words $^) $(firstword $(subst out,,$^))
define rule
extra$(1): ; @echo extra $(1)
endef
$(foreach n,1 2,$(eval $(call rule,$(n))))
clean: extra1 extra2
	rm -f $(OBJS) sum
.PHONY: all clean
