"""Random fault schedules over random fleets and loads, the failures among them, and the smallest form of a failure."""
